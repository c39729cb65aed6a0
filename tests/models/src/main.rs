use txn_models::suite::*;
fn main() {
    let only = std::env::args().nth(1);
    for suite in all() {
        if only.as_ref().is_some_and(|o| !suite.name.contains(o.as_str())) { continue }
        for case in &suite.cases {
            if std::env::var("F").is_ok() { break }
            let e = case.subject.explore();
            println!("{} | {} | states {} depth {} ex {} never {:?} {:?}", suite.name, case.name, e.states, e.depth, e.exhausted, e.never, e.took);
            if let Some(c) = e.counter_example { println!("  BROKEN {}", c.property); for s in c.steps { println!("     {s}"); } continue }
            let r = case.subject.reach_the_end();
            println!("   reach states {} {:?}", r.states, r.took);
            if let Some((n,c)) = r.stuck { println!("  STUCK {n}"); for s in c.steps { println!("     {s}"); } }
        }
        for f in &suite.flaws {
            let t=std::time::Instant::now();
            match f.find() { None => println!("  MISSED {}", f.rule), Some(c) => { println!("  caught {} : {} in {} steps {:?}", f.rule, c.property, c.steps.len(), t.elapsed()); if std::env::var("P").is_ok() { for s in c.steps { println!("     {s}"); } } } }
        }
    }
}
