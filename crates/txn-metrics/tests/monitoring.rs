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

/// Returns the figure of a series. The name of a histogram's series has a suffix.
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

/// The labels of each `by (…)`, and of each `{{…}}` in a legend.
fn used_labels<'a>(text: &'a str, open: &str, close: &str) -> BTreeSet<&'a str> {
    let ends = text.split(open).skip(1).filter_map(|rest| rest.split_once(close));
    ends.flat_map(|(labels, _)| labels.split(',').map(str::trim)).collect()
}

#[test]
fn labels_of_the_dashboard_exist() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let (mut ids, mut queries) = (BTreeSet::new(), 0);
    for panel in list(&dashboard["panels"]) {
        assert!(ids.insert(panel["id"].to_string()), "two panels have the id {}", panel["id"]);
        for query in list(&panel["targets"]) {
            let text = |name: &str| query[name].as_str().expect("a text").to_owned();
            let (expression, legend) = (text("expr"), text("legendFormat"));
            let figures: Vec<&Figure> =
                named(&expression).iter().filter_map(|(name, _)| figure(name)).collect();
            assert!(!figures.is_empty(), "{expression}");
            let by = used_labels(&expression, "by (", ")");
            for label in &by {
                let has = |figure: &&Figure| match *label {
                    "domain" => true,
                    "le" => figure.kind == Kind::Histogram,
                    label => figure.labels.iter().any(|(known, _)| *known == label),
                };
                assert!(figures.iter().all(has), "{expression} has no label {label}");
            }
            let shown = used_labels(&legend, "{{", "}}");
            assert!(shown.is_subset(&by), "{legend} names a label that {expression} drops");
            queries += 1;
        }
    }
    assert!(queries > 20, "{queries}");
}

#[test]
fn histogram_without_suffix_is_no_series() {
    assert!(figure("txn_commit_seconds").is_none());
    assert!(figure("txn_commit_seconds_bucket").is_some());
    assert!(figure("txn_commits_total_bucket").is_none());
    assert_eq!(named("a txn_x{b} my_txn_y")[0].0, "txn_x");
}
