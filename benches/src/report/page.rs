//! The report as a page.

use std::collections::BTreeMap;

use super::findings::Findings;
use super::machine::Machine;
use super::plots::Plot;
use super::scale::Scale;
use super::systems::WHAT;
use super::table::{grid, markdown, number};
use crate::load::{Load, Skew};
use crate::measure::Measured;
use crate::statistics::Times;

const HOW_TO_READ: &str = "\
Everything was measured in one run. What is compared runs in turn, in rounds, so that whatever else the machine does happens to all of it; a \
figure is the median of the rounds. **Ratios count, absolute figures do not**: they are of this machine, where clients and server share the \
processors. \"Plain\" is `_mget` and `_bulk` of the same number of documents: nothing is atomic, nothing is isolated. \"Plain, batched\" joins the \
requests of all clients, as transactions do. \"Plain, retried\" writes on the versions that were read and starts again on a conflict. \
\"Two-phase locking\" are transactions that lock as they read, with requests of their own. A process, where there are several, is a domain with \
connections, clocks and caches of its own. \"Reached\" is empty where the aim is no number.

A figure that was not measured says so. The money of every load was counted; what is lost, or there twice, stands below.";

const COLUMNS: &str = "\
In the loads below, requests and document writes are per transfer, counted at the store; `composed` says how many transfers one commit has; \
client and server are processor time per transfer.";

/// Returns the page, in Markdown.
pub(super) fn page(
    machine: &Machine,
    scale: &Scale,
    findings: &Findings,
    plots: &[Plot],
) -> String {
    let mut text = String::from("# What was measured\n\n");
    let command = if scale.quick { "cargo xtask bench --quick" } else { "cargo xtask bench" };
    text.push_str(&format!(
        "Written by `{command}`; [benchmarks.md](../benchmarks.md) says more.\n\n"
    ));
    text.push_str(&about(machine, scale));
    text.push_str(&format!("\n{HOW_TO_READ}\n\n## The table\n\n{}", markdown(&findings.rows)));
    for plot in plots {
        text.push_str(&format!("\n![{}]({})\n\n{}\n", plot.caption, plot.file, plot.caption));
    }
    let mut sections: Vec<(&str, Vec<&Measured>)> = Vec::new();
    for (section, one) in &findings.loads {
        match sections.last_mut().filter(|(last, _)| last == section) {
            Some((_, measured)) => measured.push(one),
            None => sections.push((section, vec![one])),
        }
    }
    text.push_str("\n## What is lost without transactions\n\n");
    text.push_str(
        "Changes of documents that were acknowledged and are not there; changes that are there and were never acknowledged, for a client that \
         meets a conflict leaves the half of its transfer that it has written; and what there is too little of money (below zero: too much). \
         What was lost and what was never acknowledged cancel each other: only the difference is known.\n\n",
    );
    text.push_str(&losses(findings));
    text.push_str(&format!("\n{COLUMNS}\n"));
    for (section, measured) in sections {
        text.push_str(&format!("\n## Loads: {section}\n\n{}", loads(&measured)));
    }
    text.push_str(&others(findings));
    text
}

fn about(machine: &Machine, scale: &Scale) -> String {
    let Machine { date, processor, processors, system, server, java, library, .. } = machine;
    let known = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.1}{unit}"))
    };
    let lines = [
        ("date", date.clone()),
        (
            "machine",
            format!(
                "{processors} processors ({processor}), {} of memory, {system}",
                known(machine.memory, " GiB")
            ),
        ),
        ("load before the run", known(machine.load, "")),
        ("server", format!("{server} on {java}")),
        ("library", format!("{library}, Rust, optimised")),
        ("rounds", format!("{} of {:?}", scale.pace.rounds, scale.pace.span)),
    ];
    let lines = lines.map(|(what, value)| vec![what.to_owned(), value]);
    grid(&["", ""], &lines)
}

fn load(load: &Load) -> String {
    let Load { accounts, documents, clients, processes, skew, reads } = load;
    let mut text = format!("{clients} clients, {documents} of {}", number(*accounts as f64));
    if *processes > 1 {
        text.push_str(&format!(", {processes} processes"));
    }
    if let Skew::Zipf(exponent) = skew {
        text.push_str(&format!(", zipf {exponent}"));
    }
    if *reads > 0.0 {
        text.push_str(&format!(", {:.0} % reads", reads * 100.0));
    }
    text
}

fn loads(measured: &[&Measured]) -> String {
    let lines: Vec<Vec<String>> = measured
        .iter()
        .map(|one| {
            let round = &one.round;
            let times = round.times;
            let counted = |value: f64| match one.cell.way.is_plain() {
                true => String::new(),
                false => number(value),
            };
            let cpu = |value: Option<f64>| value.map(number).unwrap_or_default();
            vec![
                load(&one.cell.load),
                one.cell.way.name().to_owned(),
                number(round.per_second.round()),
                [times.p50, times.p95, times.p99].map(number).join(", "),
                round.tries.to_string(),
                counted(round.requests),
                counted(round.writes),
                counted(round.composed),
                cpu(round.client_cpu),
                cpu(round.server_cpu),
                refused(&round.refused),
            ]
        })
        .collect();
    let head = [
        "load",
        "way",
        "per second",
        "ms: p50, p95, p99",
        "most tries",
        "requests",
        "writes",
        "composed",
        "client, µs",
        "server, µs",
        "refused",
    ];
    grid(&head, &lines)
}

fn refused(refused: &BTreeMap<String, usize>) -> String {
    let each = refused.iter().map(|(kind, count)| format!("{count} {kind}"));
    each.collect::<Vec<_>>().join(", ")
}

fn losses(findings: &Findings) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (section, one) in &findings.loads {
        let drift = one.drift;
        if !one.cell.way.is_plain() || (drift.lost, drift.money) == (0, 0) {
            continue;
        }
        let share = |count: i64| {
            let share = count as f64 / drift.changes.max(1) as f64 * 100.0;
            if count > 0 {
                format!("{} ({} %)", number(count as f64), number(share))
            } else {
                String::new()
            }
        };
        lines.push(vec![
            (*section).to_owned(),
            load(&one.cell.load),
            one.cell.way.name().to_owned(),
            number(drift.changes as f64),
            share(drift.lost),
            share(-drift.lost),
            number(drift.money as f64),
        ]);
    }
    grid(
        &["section", "load", "way", "changes", "lost", "never acknowledged", "money missing"],
        &lines,
    )
}

fn others(findings: &Findings) -> String {
    let mut text = String::new();
    let mut add = |title: &str, head: &[&str], lines: Vec<Vec<String>>| {
        if !lines.is_empty() {
            text.push_str(&format!("\n## {title}\n\n{}", grid(head, &lines)));
        }
    };
    let lines = findings.sizes.iter().map(|size| {
        let to = |value: f64| format!("{} ({})", number(value), number(value / size.plain));
        vec![
            size.documents.to_string(),
            number(size.plain),
            to(size.transaction),
            to(size.from_memory),
            size.writes.to_string(),
        ]
    });
    add(
        "One client, ms (to plain)",
        &["documents", "plain", "transaction", "from memory", "document writes"],
        lines.collect(),
    );
    let lines = findings.paths.iter().map(|path| {
        let counts = [path.to_acknowledge, path.in_all, path.writes].map(|count| count.to_string());
        [vec![path.what.clone()], counts.to_vec()].concat()
    });
    add(
        "What each path costs, counted",
        &["path", "round trips to acknowledge", "round trips in all", "document writes"],
        lines.collect(),
    );
    let lines = findings.pairs.iter().map(|pair| {
        let rate = |(rate, ms): (f64, f64)| format!("{}, {} ms", number(rate.round()), number(ms));
        let counts = [pair.accounts, pair.clients].map(|count| number(count as f64));
        [counts.to_vec(), vec![rate(pair.peer), rate(pair.bank)]].concat()
    });
    add(
        "Beside the seed's two-phase commit",
        &["accounts", "clients", "two-phase commit: per second, median", "transactions"],
        lines.collect(),
    );
    let lines = findings.phases.iter().map(|phase| {
        let figures =
            [phase.offered.round(), phase.done.round(), phase.p50, phase.p99, phase.longest]
                .map(number);
        let memory = phase.memory.map(number).unwrap_or_default();
        [vec![phase.name.to_owned()], figures.to_vec(), vec![refused(&phase.refused), memory]]
            .concat()
    });
    add(
        "Overload",
        &[
            "",
            "offered per second",
            "carried out",
            "p50, ms",
            "p99, ms",
            "longest, ms",
            "refused",
            "memory, MiB",
        ],
        lines.collect(),
    );
    let lines = findings.pools.iter().map(|pool| {
        let figures = [pool.run_time, pool.mean, pool.p95, pool.p99].map(number);
        [vec![pool.who.clone()], figures.to_vec()].concat()
    });
    add(
        "The workload of the account transactions: 4 processes with pools of 50, 1,000 users in each of 25 seconds, 1,000 accounts",
        &["", "run time, s", "mean, ms", "p95, ms", "p99, ms"],
        lines.collect(),
    );
    let lines = findings.locks.iter().map(|one| {
        let both = [one.whole, one.partial];
        let [whole, partial] = both.map(|(took, server)| {
            let server = server.map_or_else(|| "unknown".to_owned(), number);
            vec![number(took), server]
        });
        [vec![one.content.to_owned()], whole, partial].concat()
    });
    add(
        "What a lock costs the server: 32 in a request, written with the whole document, as transactions do, and as partial updates",
        &["document", "whole, ms", "server, µs for each", "partial, ms", "server, µs for each"],
        lines.collect(),
    );
    let lines = findings.settings.iter().map(|one| {
        let round = &one.round;
        let cpu = [round.client_cpu, round.server_cpu];
        let words = [one.name.to_owned(), one.clients.to_string(), one.way.name().to_owned()];
        let figures = [round.per_second.round(), round.times.p50, round.times.p99].map(number);
        let cpu = cpu.map(|cpu| cpu.map(number).unwrap_or_default());
        [words.to_vec(), figures.to_vec(), cpu.to_vec()].concat()
    });
    add(
        "Settings of HTTP: 2 of 1,000 documents",
        &[
            "setting",
            "clients",
            "way",
            "per second",
            "p50, ms",
            "p99, ms",
            "client, µs",
            "server, µs",
        ],
        lines.collect(),
    );
    text.push_str(&systems(findings));
    text
}

fn systems(findings: &Findings) -> String {
    let lines: Vec<Vec<String>> = findings
        .systems
        .iter()
        .map(|one| {
            let times = one.rate.times;
            let times = match one.rate.times == Times::default() {
                true => String::new(),
                false => [times.p50, times.p99].map(number).join(", "),
            };
            let words = [one.load.clone(), one.who.to_owned(), one.what.to_owned()];
            [words.to_vec(), vec![number(one.rate.per_second.round()), times]].concat()
        })
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let head = ["load", "who", "what", "per second", "ms: p50, p99"];
    format!("\n## The systems beside their peers\n\n{WHAT}\n\n{}", grid(&head, &lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_described_in_words() {
        let zipf = Load { skew: Skew::Zipf(0.99), reads: 0.95, ..Load::new(64, 2, 10_000) };
        assert_eq!(load(&zipf), "64 clients, 2 of 10,000, zipf 0.99, 95 % reads");
        let several = Load { processes: 4, ..Load::new(32, 3, 10) };
        assert_eq!(load(&several), "32 clients, 3 of 10, 4 processes");
    }
}
