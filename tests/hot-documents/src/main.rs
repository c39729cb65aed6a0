//! quick
use txn_hot_documents::scenario::*;
use txn_hot_documents::workload::*;
use txn_hot_documents::world::*;
fn main() {
    let seeds = [1u64, 2];
    let plain = |rtt: u64, n: usize| { let mut p = ProcessSpec::new(rtt, n); p.is_plain = true; p };
    for (rtt, c) in [(1u64, 2usize), (1, 4), (1, 8), (1, 32), (5, 8)] {
        let base = mean(&runs(&Setting::new(vec![plain(rtt, c)]), &[1]), |o| o.total());
        print!("rtt {rtt} c {c}: ");
        for k in [2usize, 4, 8, 16] {
            let mut s = Setting::new(vec![ProcessSpec::new(rtt, c); k]);
            s.seconds = 5;
            
            let o = runs(&s, &seeds);
            print!("{:.3} sh{:.2} l{:.0} bw{:.0} | ", mean(&o, |o| o.total()) / base, least(&o, |o| o.share()), most(&o, |o| o.worst()), mean(&o, |o| o.board_writes));
        }
        println!();
    }
    for (n, rtt_slow) in [(1usize, 0u64), (4, 0), (1, 300), (4, 300)] {
        let busy = vec![ProcessSpec::new(1, 32 / n); n];
        let mut s = Setting::new(busy.clone());
        s.seconds = 20; 
        let b = mean(&runs(&s, &seeds), |o| o.total());
        let one = if rtt_slow > 0 { ProcessSpec::new(rtt_slow, 1) } else { ProcessSpec::new(1, 1) };
        let mut al = one.clone(); al.is_plain = true;
        let mut s1 = Setting::new(vec![al]); s1.seconds = 30;
        let a = runs(&s1, &seeds);
        let mut p = busy.clone(); p.push(one);
        let mut s = Setting::new(p); s.seconds = if rtt_slow > 0 { 60 } else { 20 }; 
        let o = runs(&s, &seeds);
        println!("{} beside {n}: alone p99 {:.1}, {:.2}/s median {:.1} p99 {:.1} = {:.1}x longest {:.0}; busy keep {:.2}", if rtt_slow > 0 {"slow"} else {"lone"}, mean(&a, |o| o.p99[0]), mean(&o, |o| o.commits[n]), mean(&o, |o| o.median[n]), mean(&o, |o| o.p99[n]), mean(&o, |o| o.p99[n]) / mean(&a, |o| o.p99[0]), most(&o, |o| o.longest[n]), mean(&o, |o| o.total() - o.commits[n]) / b);
    }
    {
        let mut s = Setting::new(vec![plain(1, 100)]);
        s.documents = Documents::Shop { is_popular: false }; s.seconds = 4;
        let b = runs(&s, &seeds[..1]);
        for k in [2usize, 4] {
            let mut s = s.clone(); s.processes = vec![ProcessSpec::new(1, 100); k]; 
            let t = std::time::Instant::now();
            let o = runs(&s, &seeds[..1]);
            println!("shop {k}: base {:.0} p99 {:.1}: {:.3} share {:.2} p99 {:.1}x longest {:.0} handlers {:.0} batch {:.1} [{:?}]", b[0].total(), b[0].p99[0], o[0].total() / b[0].total(), o[0].share(), o[0].worst_p99() / b[0].p99[0], o[0].worst(), o[0].handlers_p99, o[0].batch, t.elapsed());
        }
    }
}
