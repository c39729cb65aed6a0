//! Runs simulations.
//!
//! A run covers a range of seeds, a time, or one seed.

use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use txn_protocol::rule::{Rule, Rules};
use txn_simulation::{
    Campaign, Coverage, Extent, Noticed, Recording, Troubles, campaign, catch, run, run_recorded,
    run_twice,
};

/// The engine on a simulated store, in virtual time, by seeds.
#[derive(Debug, Parser)]
struct Arguments {
    /// Print the run of this seed line by line.
    #[arg(long, conflicts_with_all = ["seconds", "seeds"])]
    replay: Option<u64>,
    /// Run seeds for this many seconds.
    #[arg(long, conflicts_with = "seeds")]
    seconds: Option<u64>,
    /// Run this many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Leave out each rule in turn. Find the seed that detects the omission.
    #[arg(long, conflicts_with_all = ["seconds", "replay"])]
    mutations: bool,
    /// Leave out this rule only. For `--mutations`, and for the run that is replayed.
    #[arg(long, value_parser = rule)]
    without: Option<Rule>,
    /// Only these faults and modes, separated by commas; `all` or `none`.
    #[arg(long, value_parser = troubles)]
    troubles: Option<Troubles>,
    /// Run each seed twice, and fail if the runs differ. The runs may differ in no event and no
    /// store operation.
    #[arg(long, conflicts_with_all = ["replay", "mutations"])]
    twice: bool,
    /// Fail if the runs are too few to reach each fault, rule and rare branch.
    #[arg(long, conflicts_with_all = ["replay", "mutations", "troubles"])]
    bar: bool,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let troubles = arguments.troubles.unwrap_or_default();
    if let Some(seed) = arguments.replay {
        let rules = arguments.without.map_or_else(Rules::all, Rules::without);
        let (result, log) = run_recorded(seed, troubles, &rules, Recording::Lines);
        for line in log {
            println!("{line}");
        }
        for violation in &result.violations {
            println!("VIOLATION {violation}");
        }
        return code(result.violations.is_empty());
    }
    if arguments.mutations {
        let seeds = arguments.from..arguments.from.saturating_add(arguments.seeds);
        let mutated = Rule::ALL.iter().copied().filter(|rule| rule.shown_by().has_mutation());
        let rules = arguments.without.map_or_else(|| mutated.collect(), |rule| vec![rule]);
        return mutations(&rules, &seeds, troubles);
    }
    let (extent, length) = match arguments.seconds {
        Some(seconds) => (Extent::Time(arguments.from, Duration::from_secs(seconds)), seconds),
        None => {
            let end = arguments.from.saturating_add(arguments.seeds);
            (Extent::Seeds(arguments.from..end), arguments.seeds)
        }
    };
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let began = Instant::now();
    let progress = |so_far: &Campaign| {
        let at =
            if arguments.seconds.is_some() { began.elapsed().as_secs() } else { so_far.worlds };
        bar.set_position(at);
        let (worlds, failed) = (so_far.worlds, so_far.failed.len());
        let acknowledged = so_far.counts.acknowledged;
        bar.set_message(format!("{worlds} runs, {acknowledged} acknowledged, {failed} failed"));
    };
    let run = if arguments.twice { run_twice } else { run };
    let result = campaign(&extent, |seed| run(seed, troubles), progress);
    bar.finish_and_clear();
    let coverage = Coverage::of(&result.counts);
    print!("{}{coverage}", told(&result, began.elapsed()));
    // A campaign with some faults only need not reach everything.
    let shortfalls = match troubles == Troubles::all() {
        true => coverage.shortfalls(result.worlds, arguments.bar),
        false => Vec::new(),
    };
    for shortfall in &shortfalls {
        println!("BELOW THE BAR {shortfall}");
    }
    code(result.failed.is_empty() && shortfalls.is_empty())
}

fn rule(id: &str) -> Result<Rule, String> {
    let ids: Vec<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    Rule::of_id(id).ok_or_else(|| format!("one of {}", ids.join(", ")))
}

fn troubles(names: &str) -> Result<Troubles, String> {
    let switches = Troubles::SWITCHES.map(|(name, _)| name).join(", ");
    Troubles::named(names).ok_or_else(|| format!("all, none, or some of {switches}"))
}

/// Prints a line for each rule. Fails if an omission was not detected, or if the engine never asked
/// for the rule.
fn mutations(rules: &[Rule], seeds: &Range<u64>, troubles: Troubles) -> ExitCode {
    let mut fine = true;
    for rule in rules {
        let line = match catch(*rule, seeds.clone(), troubles) {
            Some(Noticed { by, asked: 0, .. }) => {
                fine = false;
                format!("{by} fails WITHOUT ASKING FOR IT")
            }
            Some(Noticed { by, violations, asked }) => {
                let first = violations.first().map(String::as_str).unwrap_or_default();
                let shown: String = first.chars().take(100).collect();
                format!("{by}, asked {asked} times: {shown}")
            }
            None => {
                fine = false;
                "NOT DETECTED".to_owned()
            }
        };
        println!("{rule:<24} {line}");
    }
    code(fine)
}

fn code(fine: bool) -> ExitCode {
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The counts of a campaign, as a table of lines.
fn told(result: &Campaign, took: Duration) -> String {
    let counts = &result.counts;
    let mut lines = vec![
        ("runs".to_owned(), result.worlds),
        ("seconds".to_owned(), took.as_secs()),
        ("acknowledged".to_owned(), counts.acknowledged),
        ("aborted".to_owned(), counts.aborted),
        ("unknown, and committed".to_owned(), counts.settled_committed),
        ("unknown, and not committed".to_owned(), counts.settled_aborted),
        ("recovered by other processes".to_owned(), counts.recoveries),
        ("wounded by older transactions".to_owned(), counts.wounds),
        ("partitions dropped".to_owned(), counts.drops),
        ("transactions merged into groups".to_owned(), counts.composed),
        ("documents handed off".to_owned(), counts.handed_off),
    ];
    lines.push(("runs with violations".to_owned(), result.failed.len() as u64));
    let mut text: String =
        lines.iter().map(|(what, count)| format!("{what:<36}{count:>12}\n")).collect();
    for failed in &result.failed {
        for violation in &failed.violations {
            text.push_str(&format!("seed {}: {violation}\n", failed.seed));
        }
    }
    text
}
