//! The dashboard and the alert rules name metrics and labels that exist.

use std::collections::BTreeSet;

use txn_metrics::figures::{FIGURES, Figure, Kind};

const ALERTS: &str = include_str!("../../../docs/monitoring/alerts.yml");
const ALERTS_TEST: &str = include_str!("../../../docs/monitoring/alerts_test.yml");
const DASHBOARD: &str = include_str!("../../../docs/monitoring/dashboard.json");

/// The metrics that a text names, with what follows each name.
fn named(text: &str) -> Vec<(&str, &str)> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let mut named = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("txn_") {
        let begins = rest[..at].chars().next_back().is_none_or(|c| !is_name(c) && c != '-');
        let name = &rest[at..];
        let end = name.find(|c| !is_name(c)).unwrap_or(name.len());
        if begins {
            named.push((&name[..end], &name[end..]));
        }
        rest = &name[end..];
    }
    named
}

/// The figure of a series, whose name has a suffix for a histogram.
fn figure(series: &str) -> Option<&'static Figure> {
    let is = |figure: &&Figure| match figure.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"]
            .iter()
            .any(|suffix| series.strip_suffix(suffix) == Some(figure.name)),
        Kind::Counter | Kind::Gauge => series == figure.name,
    };
    FIGURES.iter().find(is)
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    for (text, least) in [(ALERTS, 10), (ALERTS_TEST, 10), (DASHBOARD, 20)] {
        let mut found = BTreeSet::new();
        for (name, _) in named(text) {
            // The target of logs, and prefixes in prose, are no metrics.
            if name != "txn_es" {
                let figure =
                    figure(name).unwrap_or_else(|| panic!("no metric has the name {name}"));
                found.insert(figure.name);
            }
        }
        assert!(found.len() >= least, "{found:?}");
    }
}

#[test]
fn label_values_of_alerts_and_their_tests_exist() {
    let mut checked = 0;
    for (name, after) in [ALERTS, ALERTS_TEST].into_iter().flat_map(named) {
        let Some((labels, _)) = after.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        else {
            continue;
        };
        let figure = figure(name).unwrap_or_else(|| panic!("no metric has the name {name}"));
        for label in labels.split(',') {
            let (label, value) = label.split_once('=').expect("a label");
            let value = value.trim_matches('"');
            let known = figure.labels.iter().find(|(known, _)| *known == label);
            let exists = known.is_some_and(|(_, values)| values.contains(&value));
            assert!(label == "domain" || exists, "{name} has no {label}={value}");
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn histogram_without_suffix_is_no_series() {
    assert!(figure("txn_commit_seconds").is_none());
    assert!(figure("txn_commit_seconds_bucket").is_some());
    assert!(figure("txn_commits_total_bucket").is_none());
    assert_eq!(named("a txn_x{b} my_txn_y")[0].0, "txn_x");
}
