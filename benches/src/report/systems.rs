//! The systems on top of the engine, each compared with a peer.

use std::time::Duration;

use super::findings::{Beside, Findings};
use super::scale::Scale;
use super::table::{Aim, Row, number};
use crate::Failure;
use crate::pair::Rate;
use crate::seed::Way;
use crate::systems::events::Events;
use crate::systems::locking::Locking;
use crate::systems::submissions::Submissions;

/// The description of the comparison.
pub(super) const WHAT: &str = "\
Each with its default settings and its processors in the process of its clients, in turn with its peer. What begins in a round is waited for, \
and counts.

- **Requests** are transfers between two accounts that are refused if there is not enough. *Submitted only* by clients that do not wait for what \
they submit; *submitted and waited for* by clients that submit the next once the one before is committed. The time to the mark \
of a finished request is that of the clocks that are kept with it. The peer is the two-phase commit of `benches/src/seed`, from its first \
write to its last.
- **Events**: a client writes a document and emits an event in one transaction, and writes the next one once the event was handled: a document \
is derived in the transaction that takes it. The time is the lag, from the acknowledged commit to the handled event. The peer is a \
plain client that writes the document, and then the derived one: whatever stops in between is lost, and of two at once the older may win. \
There is no plain peer that is as safe.
- **Locks** are taken and given back at once; the time is that until the lock is held. The peer is a lock document, looked at, created with \
`op_type=create`, looked at and deleted, and tried again after a millisecond: no lease, no fencing token, no order.";

/// Measures all systems.
pub(super) async fn systems(
    url: &str,
    way: Way,
    scale: &Scale,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let pace = scale.pace;
    let (rounds, span) = (pace.rounds.max(3), pace.span);
    requests(url, way, (scale.quick, rounds, span), findings).await?;
    events(url, (rounds, span), findings).await?;
    locks(url, (rounds, span), findings).await
}

async fn requests(
    url: &str,
    way: Way,
    (quick, rounds, span): (bool, usize, Duration),
    findings: &mut Findings,
) -> Result<(), Failure> {
    let (submissions, processor) =
        Submissions::open(url, way, if quick { 200 } else { 1_000 }).await?;
    for (clients, load) in [(1, "requests, 1 client"), (64, "requests, 64 clients")] {
        let found = submissions.measure(clients, rounds, span).await?;
        let (ours, peer) = ("requests", "the seed's two-phase commit");
        for (who, what, rate) in [
            (ours, "accepted, submitted only", found.accepted),
            (ours, "committed, submitted only", found.drained),
            (ours, "accepted, waited for", found.to_accepted),
            (ours, "committed, waited for", found.to_committed),
            (ours, "marked as finished, waited for", found.to_finished),
            (peer, "finished", found.peer),
        ] {
            findings.systems.push(Beside { load: load.to_owned(), who, what, rate });
        }
        let detail =
            format!("committed until the last: {}/s", number(found.drained.per_second.round()));
        rate(findings, format!("{load}: submitted per second"), found.accepted, &detail);
        let beside = told("the two-phase commit", found.peer);
        rate(
            findings,
            format!("{load}: carried out per second, waited for"),
            found.to_committed,
            &beside,
        );
        time(findings, format!("{load}: ms to accepted"), found.to_accepted, "");
        time(findings, format!("{load}: ms to committed"), found.to_committed, &beside);
        time(findings, format!("{load}: ms to the mark as finished"), found.to_finished, &beside);
    }
    submissions.close(processor).await
}

async fn events(
    url: &str,
    (rounds, span): (usize, Duration),
    findings: &mut Findings,
) -> Result<(), Failure> {
    let (events, processor) = Events::open(url).await?;
    for (clients, keys, load) in [
        (1, 10_000, "events, 1 emitter, 10,000 keys"),
        (64, 10_000, "events, 64 emitters, 10,000 keys"),
        (64, 1, "events, 64 emitters, one key"),
    ] {
        let [ours, peer] = events.measure((clients, keys), rounds, span).await?;
        both(findings, load, ("outbox", "plain writes"), "handled", [ours, peer]);
        let beside = told("plain", peer);
        rate(findings, format!("{load}: handled per second"), ours, &beside);
        time(findings, format!("{load}: ms from commit to handled"), ours, &beside);
    }
    events.close(processor).await
}

async fn locks(
    url: &str,
    (rounds, span): (usize, Duration),
    findings: &mut Findings,
) -> Result<(), Failure> {
    let locking = Locking::open(url).await?;
    for (clients, processes, load) in [
        (1, 1, "locks, uncontended"),
        (16, 1, "one lock, 16 of one process"),
        (16, 2, "one lock, 8 of each of 2 processes"),
    ] {
        let [ours, peer] = locking.measure(clients, processes, rounds, span).await?;
        both(findings, load, ("locks", "lock document"), "granted", [ours, peer]);
        let beside = told("the lock document", peer);
        rate(findings, format!("{load}: grants per second"), ours, &beside);
    }
    locking.close().await
}

fn both(
    findings: &mut Findings,
    load: &str,
    (ours, peer): (&'static str, &'static str),
    what: &'static str,
    rates: [Rate; 2],
) {
    for (who, rate) in [ours, peer].into_iter().zip(rates) {
        findings.systems.push(Beside { load: load.to_owned(), who, what, rate });
    }
}

fn told(who: &str, of: Rate) -> String {
    let [p50, p99] = [of.times.p50, of.times.p99].map(number);
    format!("{who}: {}/s, {p50} ms, p99 {p99} ms", number(of.per_second.round()))
}

fn rate(findings: &mut Findings, what: String, of: Rate, detail: &str) {
    row(findings, what, of.per_second, detail.to_owned());
}

fn time(findings: &mut Findings, what: String, of: Rate, beside: &str) {
    let mut detail = format!("median; p99 {} ms", number(of.times.p99));
    if !beside.is_empty() {
        detail.push_str(&format!("; {beside}"));
    }
    row(findings, what, of.times.p50, detail);
}

fn row(findings: &mut Findings, what: String, figure: f64, detail: String) {
    findings.rows.push(Row::found(what, Aim::Words("first figure".to_owned()), figure, detail));
}
