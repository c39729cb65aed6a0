//! The judgement of a history.
//!
//! The crate `adya` checks that it is strictly serialisable: it infers which transaction must have
//! come before which, by data and by real time, and looks for cycles. Three checks are our own,
//! below: every transaction happened whole or not at all in the end, no read misses what was
//! acknowledged before it began, and every value was written by some transaction.
//!
//! `adya` has a budget for *naming* a cycle; whether there is one it always finds out. So a history that is sound
//! takes linear time, and only the name of an anomaly may come out vague in a large broken one.

mod ends;
mod form;
mod fresh;
mod thin_air;

use std::fmt;
use std::time::Duration;

use crate::history::{History, Kind, Model, Outcome};

/// How long `adya` may look for the worst cycle among those that it found.
const NAMING: Duration = Duration::from_secs(10);

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing contradicts strict serialisability, and there was enough to contradict it.
    Holds,
    /// It is violated.
    Violated,
    /// The history says nothing: it is empty, or not well formed.
    Unknown,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the anomaly: `G1c`, `lost-update`, ...
    pub name: String,
    /// Which transactions, and why.
    pub explanation: String,
}

/// The verdict on a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What it came to.
    pub answer: Answer,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How many transactions were acknowledged.
    pub acknowledged: u64,
    /// How many changed nothing.
    pub aborted: u64,
    /// How many were of unknown outcome when they ended.
    pub unknown: u64,
}

impl Verdict {
    /// Whether it holds, by at least so many acknowledged transactions.
    #[must_use]
    pub fn holds_with(&self, least_acknowledged: u64) -> bool {
        self.answer == Answer::Holds && self.acknowledged >= least_acknowledged
    }

    /// The names of the anomalies, each once, in alphabetical order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.findings.iter().map(|found| &*found.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = match self.answer {
            Answer::Holds => "strictly serialisable",
            Answer::Violated => "NOT strictly serialisable",
            Answer::Unknown => "undecided",
        };
        let Self { acknowledged, aborted, unknown, .. } = self;
        write!(f, "{answer}: {acknowledged} acknowledged, {aborted} aborted, {unknown} unknown")?;
        self.findings
            .iter()
            .try_for_each(|found| write!(f, "\n{}: {}", found.name, found.explanation))
    }
}

/// Judges a history. One that was not settled is judged without its end.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let (mut answer, mut findings) = strictly_serialisable(history);
    let mut ours = fresh::stale_reads(history);
    ours.extend(thin_air::invented_values(history));
    if let Some(finals) = &history.finals {
        ours.extend(ends::whole_or_nothing(history, finals));
    }
    if !ours.is_empty() {
        answer = Answer::Violated;
        findings.extend(ours);
    }
    Verdict {
        answer,
        findings,
        acknowledged: history.count(Kind::Ok),
        aborted: history.count(Kind::Fail),
        unknown: history.count(Kind::Info),
    }
}

fn strictly_serialisable(history: &History) -> (Answer, Vec<Finding>) {
    let undecided = |why: String| {
        (Answer::Unknown, vec![Finding { name: "malformed".to_owned(), explanation: why }])
    };
    if let Some(flaw) = form::flaw(history) {
        return undecided(flaw);
    }
    let parsed = match for_adya(history).map(|text| adya::History::from_json(&text)) {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(error)) => return undecided(error.to_string()),
        Err(error) => return undecided(error.to_string()),
    };
    let workload = match history.model {
        Model::ListAppend => adya::Workload::ListAppend,
        Model::Register => adya::Workload::RwRegister,
    };
    let options = adya::Opts {
        timeout: NAMING,
        // What the order of the versions of a register was, as far as the engine's promises tell.
        wfr_keys: true,
        linearizable_keys: true,
        ..adya::Opts::default()
    };
    let report = adya::check(&parsed, workload, &options);
    let answer = match report.valid {
        adya::Valid::True => Answer::Holds,
        adya::Valid::False => Answer::Violated,
        adya::Valid::Unknown => Answer::Unknown,
    };
    let findings = report.anomalies.into_iter().flat_map(|(name, found)| {
        found
            .into_iter()
            .map(move |one| Finding { name: name.clone(), explanation: one.explanation })
    });
    (answer, findings.collect())
}

/// The history as text. What turned out not to have committed is told as failed, so that nobody may have read it.
fn for_adya(history: &History) -> std::io::Result<String> {
    let mut known = history.clone();
    for entry in &mut known.entries {
        if entry.outcome == Some(Outcome::Aborted) {
            entry.kind = Kind::Fail;
        }
    }
    let mut text = Vec::new();
    known.write_json_lines(&mut text)?;
    String::from_utf8(text).map_err(std::io::Error::other)
}
