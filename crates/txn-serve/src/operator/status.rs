//! The state of a domain, with the causes of its faults.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use txn_core::admin::{Overview, TransactionState};
use txn_core::ids::Day;
use txn_core::{Domain, Error};
use txn_es::EsStore;
use txn_outbox::{Backlog, Outbox, OutboxConfig};
use txn_requests::{OpenCounts, RequestError, Requests, RequestsConfig, State, Stuck};

use super::cluster::{Parts, clock_differs, clock_remedy, server_findings};
use super::findings::{Findings, look, stall_ms};
use super::message::Message;
use super::views::{ProcessList, processes};

/// The lead of a clock that is worth a message, in milliseconds.
const CLOCK_MS: u64 = 1_000;

/// After this time without a change a request is stuck. Also the default of `txn requests stuck`.
const STUCK: Duration = Duration::from_secs(3_600);

/// How long the end of the requests may take. The status starts no work.
const END: Duration = Duration::from_secs(1);

/// The state of a domain.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The parts of the domain.
    pub overview: Overview,
    /// The open transactions and locks, and all messages.
    pub findings: Findings,
    /// The time of a read, in milliseconds.
    pub read_ms: u64,
    /// The registered processes. `None` if the registry cannot be read.
    pub processes: Option<ProcessList>,
    /// The backlog of the outbox, if the domain has one.
    pub outbox: Option<Backlog>,
    /// The submitted requests, if the domain has some.
    pub requests: Option<RequestCounts>,
}

/// The submitted requests that are not over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestCounts {
    /// The number of requests in each state.
    pub open: OpenCounts,
    /// The number of requests that need an operator.
    pub stuck: usize,
}

/// Returns the state of a domain, with at most `limit` transactions and locks.
///
/// # Errors
/// The errors of the store for the domain document, the outbox and the requests.
pub async fn status(
    domain: &Domain,
    servers: Option<&EsStore>,
    limit: usize,
) -> Result<Status, RequestError> {
    let asked = Instant::now();
    let overview = domain.admin().overview().await?;
    let read_ms = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (overview, missing) = with_tomorrow(domain, overview).await?;
    let mut findings = look(domain, stall_ms(domain), limit).await?;
    let mut causes = causes(servers, &overview, &Parts::of(&overview)).await;
    causes.extend(missing);
    // The findings report a registry that cannot be read.
    let processes = processes(domain, usize::MAX).await.ok();
    causes.extend(processes.iter().flat_map(of_processes));
    findings.put_causes_first(causes);
    let outbox = outbox(domain, &overview).await?;
    findings.messages.extend(outbox.as_ref().and_then(of_dead_letters));
    let requests = requests(domain, &overview, &mut findings.messages).await?;
    Ok(Status { overview, findings, read_ms, processes, outbox, requests })
}

impl Status {
    /// The state as JSON. `probe`: the latency of locks and commits, if it was measured.
    #[must_use]
    pub fn json(&self, probe: Option<Value>) -> Value {
        let Self { overview, findings, .. } = self;
        let outbox = self.outbox.as_ref().map(|backlog| {
            let mut value = json!(backlog);
            value["lag_ms"] = json!(backlog.lag_ms(overview.now_ms));
            value
        });
        let requests = self.requests.as_ref().map(|requests| {
            let mut value = json!(requests.open);
            value["lag_ms"] = json!(requests.open.lag_ms(overview.now_ms));
            value["stuck"] = json!(requests.stuck);
            value
        });
        let processes = self.processes.as_ref().map(|list| {
            json!({
                "registered": list.processes.len(), "silent": list.silent(),
                "libraries": list.libraries,
            })
        });
        json!({
            "well": findings.is_well(),
            "domain": overview.domain,
            "now_ms": overview.now_ms,
            "read_ms": self.read_ms,
            "clock_ahead_ms": overview.clock_ahead_ms,
            "partitions": overview.partitions,
            "dropped_through": overview.dropped_through,
            "collections": overview.collections,
            "open": {
                "pending": findings.count(TransactionState::Pending),
                "committed": findings.count(TransactionState::Committed),
                "locks_without_record": findings.without_record().count(),
                "oldest_ms": findings.oldest_ms(),
            },
            "locks": findings.locks.len(),
            "truncated": findings.truncated,
            "processes": processes,
            "probe": probe,
            "outbox": outbox,
            "requests": requests,
            "messages": findings.messages,
        })
    }
}

/// Finds causes in the servers.
///
/// If the store has no servers, the causes are those of the clock.
pub async fn causes(servers: Option<&EsStore>, overview: &Overview, parts: &Parts) -> Vec<Message> {
    match servers {
        Some(servers) => server_findings(servers, parts).await,
        None => of_clock(overview.clock_ahead_ms).into_iter().collect(),
    }
}

/// Prepares the partition of tomorrow if it is missing.
///
/// Returns the parts of the domain, and the reason why tomorrow has no partition.
///
/// # Errors
/// The errors of the store for the domain document.
pub async fn with_tomorrow(
    domain: &Domain,
    overview: Overview,
) -> Result<(Overview, Option<Message>), Error> {
    let tomorrow = Day::of_unix_time(Duration::from_millis(overview.now_ms)).plus(1);
    if overview.partitions.iter().any(|part| part.day == tomorrow) {
        return Ok((overview, None));
    }
    match domain.admin().prepare_days().await {
        Ok(()) => Ok((domain.admin().overview().await?, None)),
        Err(error) => {
            let text = format!("tomorrow, {tomorrow}, has no partition yet: {error}");
            let remedy = "remove the cause today; each process tries again within 5 min";
            Ok((overview, Some(Message::error("partition_missing", text, remedy))))
        }
    }
}

/// The backlog of the outbox. Opening a missing outbox would create its collection.
async fn outbox(domain: &Domain, overview: &Overview) -> Result<Option<Backlog>, RequestError> {
    if !overview.collections.contains(&domain.collection_name("outbox")) {
        return Ok(None);
    }
    let outbox = Outbox::open(domain, OutboxConfig::default()).await?;
    Ok(Some(outbox.source().backlog().await?))
}

/// The open requests. Adds the message about stuck ones.
async fn requests(
    domain: &Domain,
    overview: &Overview,
    messages: &mut Vec<Message>,
) -> Result<Option<RequestCounts>, RequestError> {
    if !overview.collections.contains(&domain.collection_name("requests")) {
        return Ok(None);
    }
    let requests = Requests::open(domain, RequestsConfig::default()).await?;
    let look =
        async { Ok::<_, RequestError>((requests.counts().await?, requests.stuck(STUCK).await?)) };
    let looked = look.await;
    requests.shutdown(END).await;
    let (open, stuck) = looked?;
    messages.extend(of_stuck(&stuck));
    Ok(Some(RequestCounts { open, stuck: stuck.len() }))
}

/// The fault of requests that need an operator.
fn of_stuck(stuck: &[(txn_requests::Status, Stuck)]) -> Option<Message> {
    let (first, why) = stuck.first()?;
    let quarantined = stuck.iter().filter(|(one, _)| one.state == State::Quarantined).count();
    let (unchanged, minutes) = (stuck.len() - quarantined, STUCK.as_secs() / 60);
    let text = format!(
        "{quarantined} requests are quarantined, and {unchanged} have not changed for {minutes} min; the first is {}: \
         {why}",
        first.id
    );
    let remedy = "`txn requests stuck` names the reasons; after a repair `txn requests release KEY`, to give one up \
                  `txn requests cancel KEY`";
    Some(Message::error("requests_stuck", text, remedy).about(&first.id))
}

fn of_dead_letters(backlog: &Backlog) -> Option<Message> {
    (backlog.dead > 0).then(|| {
        let Backlog { dead, blocked, .. } = backlog;
        Message::error(
            "dead_letters",
            format!("{dead} events are dead letters, and {blocked} keys wait for one"),
            "`txn dead list`, then `txn dead retry` or `txn dead drop`",
        )
    })
}

/// A clock that differs from the server's.
fn of_clock(ahead_ms: Option<i64>) -> Option<Message> {
    let ahead = ahead_ms.filter(|ahead| ahead.unsigned_abs() > CLOCK_MS)?;
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    Some(clock_differs(ahead.unsigned_abs(), side))
}

/// The faults of the processes: wrong clocks, and different library versions.
fn of_processes(list: &ProcessList) -> Vec<Message> {
    let alive = list.processes.iter().filter(|report| !report.silent);
    let clocks = alive.filter_map(|report| {
        let entry = &report.entry;
        of_process_clock(&entry.process, &entry.host, entry.clock_ahead_ms?)
    });
    clocks.chain(of_libraries(&list.libraries)).collect()
}

fn of_process_clock(process: &str, host: &str, ahead_ms: i64) -> Option<Message> {
    let by_ms = ahead_ms.unsigned_abs();
    (by_ms > CLOCK_MS).then(|| {
        let side = if ahead_ms < 0 { "behind" } else { "ahead of" };
        let text = format!(
            "the clock of {host}, where {process} runs, is {by_ms} ms {side} the clock of the server"
        );
        let remedy = clock_remedy(&format!("clock of {host}"));
        Message::error("process_clock_differs", text, remedy).about(process)
    })
}

fn of_libraries(libraries: &[String]) -> Option<Message> {
    (libraries.len() > 1).then(|| {
        let text =
            format!("the processes have several versions of the library: {}", libraries.join(", "));
        Message::note("libraries_differ", text, "finish the upgrade; `txn processes` names them")
    })
}

#[cfg(test)]
mod tests {
    use super::super::message::Severity;
    use super::*;

    #[test]
    fn clock_of_a_process_is_a_fault_beyond_a_second() {
        assert_eq!(of_process_clock("till-7", "db", 1_000), None);
        for (ahead_ms, side) in [(1_001, "1001 ms ahead of"), (-3_600_000, "3600000 ms behind")] {
            let message = of_process_clock("till-7", "db", ahead_ms).expect("a fault");
            assert_eq!(
                (message.code, message.severity),
                ("process_clock_differs", Severity::Error)
            );
            assert!(message.text.contains(side) && message.text.contains("till-7"), "{message:?}");
            assert!(message.remedy.contains("the clock of db "), "{message:?}");
        }
    }

    #[test]
    fn several_versions_of_the_library_are_noted() {
        let versions = |of: &[&str]| of.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        assert_eq!(of_libraries(&versions(&["0.1.0"])), None);
        let message = of_libraries(&versions(&["0.1.0", "0.2.0"])).expect("a note");
        assert_eq!((message.code, message.severity), ("libraries_differ", Severity::Note));
    }
}
