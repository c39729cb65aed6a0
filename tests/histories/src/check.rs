//! The check of a history.
//!
//! The crate `adya` checks strict serialisability. `adya` infers the order of transactions from
//! data and from real time, and searches for cycles. Three further checks are in this module:
//!
//! - Every transaction happened whole or not at all.
//! - No read misses a write that was acknowledged before the read began.
//! - Some transaction wrote every value.
//!
//! `txn_judge` judges each history a second time, by an implementation of its own. A history holds
//! if both judges accept it.
//!
//! `adya` has a budget for *naming* a cycle, and always finds out whether there is one. So a sound
//! history takes linear time. Only the name of an anomaly may be vague in a large broken history.

mod ends;
mod export;
mod form;
mod fresh;
mod second;
mod thin_air;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use txn_judge::{Judgement, Ruling};

use crate::history::{History, Kind, Model, Outcome};

/// How long `adya` may search for the worst found cycle.
const NAMING: Duration = Duration::from_secs(10);

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The history is strictly serialisable. The history has enough operations to show the
    /// contrary.
    Holds,
    /// The history violates strict serialisability.
    Violated,
    /// The history is empty, or not well formed.
    Unknown,
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the anomaly: `G1c`, `lost-update`, ...
    pub name: String,
    /// The transactions, and the reason.
    pub explanation: String,
}

/// The verdict on a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The result.
    pub answer: Answer,
    /// The violations.
    pub findings: Vec<Finding>,
    /// The number of acknowledged transactions.
    pub acknowledged: u64,
    /// The number of transactions that changed nothing.
    pub aborted: u64,
    /// The number of transactions with an unknown outcome at their end.
    pub unknown: u64,
    /// The judgement of the second judge.
    pub second: Judgement,
}

impl Verdict {
    /// Whether both judges accept a history of enough acknowledged transactions.
    ///
    /// `least_acknowledged` is the required number.
    #[must_use]
    pub fn holds_with(&self, least_acknowledged: u64) -> bool {
        let both = self.answer == Answer::Holds && self.second.ruling == Ruling::Valid;
        both && self.acknowledged >= least_acknowledged
    }

    /// Whether the two judges agree.
    ///
    /// The first judge leaves more histories undecided. The second judge may decide them.
    #[must_use]
    pub fn judges_agree(&self) -> bool {
        match self.answer {
            Answer::Holds => self.second.ruling == Ruling::Valid,
            Answer::Violated => self.second.ruling == Ruling::Invalid,
            Answer::Unknown => true,
        }
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
            .try_for_each(|found| write!(f, "\n{}: {}", found.name, found.explanation))?;
        if self.second.ruling == Ruling::Valid && self.answer == Answer::Holds {
            return Ok(());
        }
        write!(f, "\nsecond judge: {}", self.second)
    }
}

/// Checks a history. A history that was not settled is checked without its final state.
///
/// With `TXN_HISTORIES_FOLDER` the history is also written into that folder, for other checkers.
///
/// # Panics
/// If the history cannot be written there.
#[must_use]
pub fn check(history: &History) -> Verdict {
    if let Some(folder) = std::env::var_os("TXN_HISTORIES_FOLDER") {
        export::export(history, Path::new(&folder)).expect("writes into TXN_HISTORIES_FOLDER");
    }
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
        second: second::judged(history),
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
        // The order of a register's versions, as far as the guarantees of the engine tell it.
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

/// The history as text.
///
/// A transaction that was found aborted is written as failed, so that no other transaction may have
/// read it.
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
