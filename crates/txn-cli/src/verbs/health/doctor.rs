//! The verb `doctor`, which checks a domain and its servers.
//!
//! The verb checks the parts one by one.

use serde_json::{Value, json};
use txn_cli::Progress;
use txn_core::admin::Overview;
use txn_core::ids::Day;
use txn_serve::operator::{Parts, causes, look, server_findings, stall_ms, with_tomorrow};

use super::{LOOK, exit_of};
use crate::answer::{Answer, Exit, Failure, Message, Severity, is_well, lines};
use crate::args::Global;
use crate::session::Session;

/// A checked part, and its fault.
type Check = (String, Option<Message>);

/// Checks the parts of the domain one by one.
pub(super) async fn doctor(
    session: &Session,
    collection: Option<&str>,
    global: &Global,
) -> Result<Answer, Failure> {
    let domain = &session.domain;
    let progress = Progress::begin(LOOK, global.json);
    let (overview, missing) = with_tomorrow(domain, domain.admin().overview().await?).await?;
    let parts = Parts::of(&overview);
    let mut findings = look(domain, stall_ms(domain), global.limit()).await?;
    progress.step("asking the servers");
    findings.put_causes_first(causes(session.servers(), &overview, &parts).await);
    findings.messages.extend(missing.clone());
    let known = findings.messages.iter().filter_map(|message| message.subject.clone()).collect();
    findings.messages.extend(orphans(session, &parts, known).await?);
    drop(progress);
    let wanted = |name: &&String| collection.is_none_or(|wanted| wanted == **name);
    let collections: Vec<&String> = overview.collections.iter().filter(wanted).collect();
    if let (Some(wanted), true) = (collection, collections.is_empty()) {
        let text = format!("the domain has no collection {wanted:?}");
        let remedy = format!("check the name, or take it over: `txn init {wanted}`");
        findings.messages.push(Message::error("collection_unknown", text, remedy).about(wanted));
    }
    let messages: Vec<Message> = match collection {
        Some(wanted) => findings.messages.iter().filter(|m| is_about(m, wanted)).cloned().collect(),
        None => findings.messages.clone(),
    };
    let checks = checks(session, &overview, collection, &collections, &messages);
    let told =
        |message: &&Message| !checks.iter().any(|(_, fault)| fault.as_ref() == Some(message));
    let rest: Vec<Message> = messages.iter().filter(told).cloned().collect();
    let mut text = String::new();
    for (what, fault) in &checks {
        text += &match fault {
            None => format!("ok  {what}\n"),
            Some(message) => format!("BAD {what}: {}\n", message.line()),
        };
    }
    text += &lines(&rest);
    let well = is_well(&messages);
    let checks: Vec<Value> = checks
        .iter()
        .map(|(what, fault)| json!({ "check": what, "ok": fault.is_none() }))
        .collect();
    let json = json!({ "well": well, "checks": checks, "messages": messages });
    let exit = match (collection, exit_of(&findings)) {
        (Some(_), _) | (None, Exit::Well) => Exit::well_if(well),
        (None, exit) => exit,
    };
    Ok(Answer::new(exit, text, json))
}

/// The checked parts, each with its first fault.
fn checks(
    session: &Session,
    overview: &Overview,
    collection: Option<&str>,
    collections: &[&String],
    messages: &[Message],
) -> Vec<Check> {
    let by_code =
        |codes: &[&str]| messages.iter().find(|message| codes.contains(&message.code)).cloned();
    let about = |name: &str| {
        let fault = |m: &&Message| m.severity == Severity::Error && is_about(m, name);
        messages.iter().find(fault).cloned()
    };
    let mut checks: Vec<Check> = Vec::new();
    if collection.is_none() {
        checks.push((format!("store: {}", session.what()), None));
        checks.push((format!("domain document of {:?}", overview.domain), about("txn-registry")));
        if session.servers().is_some() {
            let disks = by_code(&["disk_full", "disk_high"]);
            checks.extend([
                ("blocks of the cluster".to_owned(), by_code(&["cluster_blocked"])),
                ("requests that name an index".to_owned(), by_code(&["explicit_index_refused"])),
                ("disks of the nodes".to_owned(), disks),
                ("limit of shards".to_owned(), by_code(&["shard_limit"])),
                ("privileges".to_owned(), by_code(&["privilege_missing"])),
                ("clocks of the nodes".to_owned(), by_code(&["node_clock_differs"])),
                ("index templates".to_owned(), by_code(&["template_spoils_partition"])),
            ]);
        }
        checks.push(("clock of this machine".to_owned(), by_code(&["clock_differs"])));
        let missing = by_code(&["partition_missing"]);
        checks.push(("partition of tomorrow".to_owned(), missing));
        for partition in &overview.partitions {
            checks.push((format!("partition {}", partition.day), about(&partition.name)));
        }
    }
    for name in collections {
        checks.push((format!("collection {name}"), about(name)));
    }
    if let (Some(wanted), true) = (collection, collections.is_empty()) {
        checks.push((format!("collection {wanted}"), about(wanted)));
    }
    checks
}

/// Whether a message is about a collection or its documents.
fn is_about(message: &Message, collection: &str) -> bool {
    let rest = message.subject.as_deref().and_then(|subject| subject.strip_prefix(collection));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Finds partitions that the domain document does not name.
///
/// No other message reports such a partition.
///
/// A process that ended during the creation of a partition leaves an empty partition.
async fn orphans(
    session: &Session,
    parts: &Parts,
    known: Vec<String>,
) -> Result<Vec<Message>, Failure> {
    let prefix = parts.prefix();
    let names = session.store().list_collections(&prefix).await?;
    let is_official = |name: &str| parts.partitions.iter().any(|(_, official)| official == name);
    // A process may be making the partition of a day that has none.
    let is_settled = |day: Day| {
        day < parts.today || parts.partitions.iter().any(|(official, _)| *official == day)
    };
    let orphans = names.iter().filter(|name| {
        parts.day_of(name).is_some_and(is_settled)
            && !is_official(name)
            && !known.iter().any(|known| **known == ***name)
    });
    let message = |name: &std::sync::Arc<str>| {
        let text =
            format!("the partition {name} is empty, and the domain document does not name it");
        let remedy = "a process ended while it made the partition; delete it";
        let message = Message::note("orphan_partition", text, remedy).about(&**name);
        match session.servers() {
            Some(_) => message.mended_by(format!("DELETE /{name}")),
            None => message,
        }
    };
    Ok(orphans.map(message).collect())
}

/// The findings about a domain that cannot be opened.
pub(super) async fn unopened(
    servers: Option<&txn_es::EsStore>,
    domain: &str,
    failure: Failure,
) -> Result<Answer, Failure> {
    let Some(servers) = servers else { return Err(failure) };
    let mut messages = server_findings(servers, &Parts::unopened(servers, domain).await).await;
    if is_well(&messages) {
        return Err(failure);
    }
    let remedy = "mend the faults before this one, then repeat".to_owned();
    messages.push(Message { remedy, ..failure.into_message() });
    let text = format!("The domain {domain:?} cannot be opened.\n{}", lines(&messages));
    let json = json!({ "well": false, "exit": Exit::NotWell as u8, "messages": messages });
    Ok(Answer::new(Exit::NotWell, text, json))
}
