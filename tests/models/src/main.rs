//! Explores the models and prints the results.
//!
//! `cargo run --release -p txn-models -- [--model NAME] [--large] [--paths]`

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use comfy_table::Table;
use txn_models::all;
use txn_models::check::CounterExample;
use txn_models::suite::{Case, Flaw, Suite};
use txn_protocol::rule::Rule;

/// Explores the models of the protocol exhaustively.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only models with this text in their name.
    #[arg(long)]
    model: Option<String>,
    /// Only cases with this text in their name.
    #[arg(long)]
    case: Option<String>,
    /// Include the large cases. Such a case is too large for every run of the tests.
    #[arg(long)]
    large: bool,
    /// Only the rules that are left out.
    #[arg(long)]
    flaws: bool,
    /// Print the steps of every counterexample.
    #[arg(long)]
    paths: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut cases = Table::new();
    cases.set_header(["model", "case", "bounds", "states", "depth", "seconds", "verdict"]);
    let mut flaws = Table::new();
    flaws.set_header(["model", "id", "rule left out", "steps", "seconds", "what it breaks"]);
    let mut good = true;
    let wanted = |suite: &Suite| arguments.model.as_ref().is_none_or(|m| suite.name.contains(m));
    for suite in all().iter().filter(|suite| wanted(suite)) {
        let named = |case: &Case| arguments.case.as_ref().is_none_or(|n| case.name.contains(n));
        let sized = |case: &Case| arguments.large || !case.large;
        let tried = |case: &&Case| !arguments.flaws && sized(case) && named(case);
        for case in suite.cases.iter().filter(tried) {
            good &= check(suite, case, &mut cases);
        }
        for flaw in &suite.flaws {
            good &= find(suite, flaw, &mut flaws, arguments.paths);
        }
    }
    println!("{cases}\n{flaws}");
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores one case. Returns whether it meets the expectations.
fn check(suite: &Suite, case: &Case, table: &mut Table) -> bool {
    let began = Instant::now();
    eprintln!("{}: {}", suite.name, case.name);
    let explored = case.subject.explore();
    let mut verdict = match &explored.counter_example {
        Some(example) => {
            print(example);
            format!("BROKEN: {}", example.property)
        }
        None if explored.never.is_empty() => "clean".to_owned(),
        None => format!("never: {}", explored.never.join(", ")),
    };
    if explored.is_clean()
        && case.ends
        && let Some((count, example)) = case.subject.reach_the_end().stuck
    {
        print(&example);
        verdict = format!("STUCK: {count} states");
    } else if explored.is_clean() && case.ends {
        "clean, the end can be reached".clone_into(&mut verdict);
    }
    if explored.states != case.states {
        verdict += &format!(" (expected {} states)", case.states);
    }
    eprintln!("  {} states, {:.1} s, {verdict}", explored.states, began.elapsed().as_secs_f64());
    table.add_row([
        suite.name.to_owned(),
        case.name.to_owned(),
        case.bounds.to_owned(),
        explored.states.to_string(),
        explored.depth.to_string(),
        format!("{:.1}", began.elapsed().as_secs_f64()),
        verdict.clone(),
    ]);
    verdict.starts_with("clean")
}

/// Finds the violation without a rule. Returns whether there is one.
fn find(suite: &Suite, flaw: &Flaw, table: &mut Table, paths: bool) -> bool {
    let began = Instant::now();
    eprintln!("{} without: {}", suite.name, flaw.rule);
    let found = flaw.find();
    if let Some(example) = found.as_ref().filter(|_| paths) {
        print(example);
    }
    let (steps, breaks) = match &found {
        Some(example) => (example.steps.len().to_string(), example.property.clone()),
        None => (String::new(), "NOTHING".to_owned()),
    };
    eprintln!("  {steps} steps, {:.1} s, {breaks}", began.elapsed().as_secs_f64());
    let seconds = format!("{:.1}", began.elapsed().as_secs_f64());
    let id = flaw.left_out().map(Rule::id).unwrap_or_default().to_owned();
    table.add_row([suite.name.to_owned(), id, flaw.rule.to_owned(), steps, seconds, breaks]);
    found.is_some()
}

fn print(example: &CounterExample) {
    println!("{}:", example.property);
    for step in &example.steps {
        println!("    {step}");
    }
}
