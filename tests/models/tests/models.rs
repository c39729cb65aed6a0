//! Explores every model exhaustively, and finds each rule that is left out.
//!
//! `TXN_MODELS_PATHS=1 cargo test -p txn-models -- --nocapture` prints the shortest path to the
//! failure without each rule. `cargo test --release -p txn-models -- --ignored` explores the large
//! cases.

use txn_models::all;
use txn_models::suite::{Case, Flaw, Shows, Suite};
use txn_protocol::rule::Rule;

fn suite(name: &str) -> Suite {
    all().into_iter().find(|suite| suite.name == name).expect("a model of that name")
}

fn check(suite: &Suite, case: &Case) {
    let (model, name) = (suite.name, case.name);
    let explored = case.subject.explore();
    if let Some(example) = &explored.counter_example {
        panic!("{model}, {name}: {}\n{}", example.property, example.steps.join("\n"));
    }
    assert!(explored.exhausted, "{model}, {name}: not every state was seen");
    assert!(explored.never.is_empty(), "{model}, {name}: never: {:?}", explored.never);
    assert_eq!(
        explored.states, case.states,
        "{model}, {name}: another number of states; if that is meant, change it here and in docs/testing.md"
    );
    if case.ends {
        let reached = case.subject.reach_the_end();
        assert_eq!(reached.states, case.states, "{model}, {name}: both explorations see the same");
        if let Some((count, example)) = reached.stuck {
            let path = example.steps.join("\n");
            panic!("{model}, {name}: the end cannot be reached from {count} states\n{path}");
        }
    }
}

fn check_all(name: &str) {
    let suite = suite(name);
    for case in suite.cases.iter().filter(|case| !case.large) {
        check(&suite, case);
    }
}

fn find_all(name: &str) {
    let suite = suite(name);
    assert!(!suite.flaws.is_empty(), "{name} shows no rule");
    for flaw in &suite.flaws {
        let found = flaw.find();
        let example = found.unwrap_or_else(|| panic!("{name}: not detected: {}", flaw.rule));
        if let Some(rule) = flaw.left_out() {
            assert!(
                flaw.asked() > 0,
                "{name}: something fails without {rule}, and never asks for it"
            );
        }
        assert!(!example.steps.is_empty(), "{name}, {}: nothing had to happen", flaw.rule);
        if flaw.shows == Shows::Stuck {
            assert_eq!(example.property, "the end can be reached", "{name}, {}", flaw.rule);
        }
        if std::env::var_os("TXN_MODELS_PATHS").is_some() {
            println!("{name} without: {}\n  breaks: {}", flaw.rule, example.property);
            example.steps.iter().for_each(|step| println!("    {step}"));
        }
    }
}

macro_rules! models {
    ($($name:ident),*) => {$(
        mod $name {
            #[test]
            fn is_clean() {
                super::check_all(stringify!($name));
            }

            #[test]
            fn detects_every_omitted_rule() {
                super::find_all(stringify!($name));
            }
        }
    )*

        #[test]
        fn every_model_is_tested() {
            let tested = [$(stringify!($name)),*];
            let names: Vec<&str> = all().iter().map(|suite| suite.name).collect();
            assert_eq!(names, tested);
        }
    };
}

models!(
    explicit_insert,
    moved_locks,
    made_again,
    wound_wait,
    chains,
    validated_reads,
    vanishing_writes,
    two_recoverers,
    one_document,
    refused_writes,
    partition_drop,
    board
);

#[test]
fn models_omit_every_rule_they_show() {
    let flaws: Vec<Rule> =
        all().iter().flat_map(|suite| &suite.flaws).filter_map(Flaw::left_out).collect();
    for rule in Rule::ALL {
        assert_eq!(flaws.contains(rule), rule.shown_by().has_model(), "{rule}");
    }
}

#[test]
#[ignore = "minutes for each case"]
fn large_cases_are_clean() {
    for suite in all() {
        for case in suite.cases.iter().filter(|case| case.large) {
            check(&suite, case);
        }
    }
}
