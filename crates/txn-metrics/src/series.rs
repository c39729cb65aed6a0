//! Series of one metric, by the value of a label.

use std::collections::HashMap;

use metrics::{Counter, counter};

use crate::figures::{LABELS, NONE, OTHER, SEVERAL};

/// The series of a metric, one per known label value.
#[derive(Debug)]
pub(crate) struct ByValue<S>(Vec<(&'static str, S)>);

impl<S> ByValue<S> {
    pub(crate) fn new(values: &[&'static str], series: impl Fn(&'static str) -> S) -> Self {
        Self(values.iter().map(|value| (*value, series(value))).collect())
    }

    /// The series of a value. An unknown value, of a later version, counts as the last one.
    pub(crate) fn of(&self, value: &str) -> &S {
        let known = self.0.iter().position(|(known, _)| *known == value);
        &self.0[known.unwrap_or(self.0.len() - 1)].1
    }
}

/// The counters of a metric, by the label of the transaction.
#[derive(Debug)]
pub(crate) struct ByLabel {
    name: &'static str,
    known: HashMap<String, Counter>,
    none: Counter,
    several: Counter,
    other: Counter,
}

impl ByLabel {
    pub(crate) fn new(name: &'static str, domain: &str) -> Self {
        let [none, several, other] =
            [NONE, SEVERAL, OTHER].map(|label| of_label(name, domain, label));
        Self { name, known: HashMap::new(), none, several, other }
    }

    pub(crate) fn add(&mut self, domain: &str, labels: &[&str]) {
        for label in labels.iter().filter(|label| !LABELS.contains(label)) {
            self.known.insert((*label).to_owned(), of_label(self.name, domain, label));
        }
    }

    pub(crate) fn of(&self, label: Option<&str>) -> &Counter {
        match label {
            None => &self.none,
            // Only a group of several labels has this character.
            Some(label) if label.contains('+') => &self.several,
            Some(label) => self.known.get(label).unwrap_or(&self.other),
        }
    }
}

fn of_label(name: &'static str, domain: &str, label: &str) -> Counter {
    counter!(name, "domain" => domain.to_owned(), "label" => label.to_owned())
}
