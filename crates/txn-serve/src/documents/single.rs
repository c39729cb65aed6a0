//! Requests of one document.

use hyper::StatusCode;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use txn_core::{Answer, Collection, DocumentId, Raw};
use txn_lock::instance::random;

use super::action::{Action, Change, Update, condition};
use super::apply::{Fault, Planned, carry_out};
use super::fingerprint::Fingerprint;
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::http::shape::Shape;

/// The kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Index,
    IndexNew,
    Create,
    Update,
    Delete,
}

/// Writes one document in a transaction.
pub(crate) async fn write(
    backend: &Backend,
    asked: &mut Asked,
    write: Write,
) -> Result<Reply, Problem> {
    let wait_for = asked.parameters.take_refresh()?;
    let routing = asked.parameters.take("routing");
    let seq_no = asked.parameters.take_number("if_seq_no")?;
    let condition = condition(seq_no, asked.parameters.take_number("if_primary_term")?)?;
    let takes_op_type = asked.route.work.takes_op_type();
    let op_type = if takes_op_type { asked.parameters.take("op_type") } else { None };
    let creates = match op_type.as_deref() {
        None => matches!(write, Write::Create | Write::IndexNew),
        Some("index") => write == Write::IndexNew,
        Some("create") => true,
        Some(_) => return Err(Problem::new(Code::Invalid, "op_type is not index or create")),
    };
    asked.finish_parameters()?;
    if creates && condition.is_some() {
        let detail = "a write of a new document has no condition: no document exists";
        return Err(Problem::new(Code::Invalid, detail));
    }
    let index = asked.route.value(0).to_owned();
    asked.named.documents(&index, 1);
    let id = match write {
        Write::IndexNew => random(&backend.domain),
        _ => asked.route.value(1).to_owned(),
    };
    let (verb, change) = match write {
        Write::Update => ("update", Change::Update(Update::parse(asked.text()?)?)),
        Write::Delete => ("delete", Change::Delete),
        _ if creates => ("create", Change::Create(asked.text()?)),
        _ => ("index", Change::Index(asked.text()?)),
    };
    let documents = match change.creates() {
        true => backend.for_write(&asked.caller, &index).await?,
        false => backend.existing(&asked.caller, Verb::Write, &index).await?,
    };
    let action = Action { verb, index, id, routing, condition, change };
    let planned = [Planned { action, documents }];
    let options = backend.options().with_wait_for(wait_for);
    let (planned, domain, budget) = (&planned, &backend.domain, &asked.budget);
    let run = backend.run(asked.key.as_ref(), &options, async |tx| {
        let results = carry_out(domain, tx, planned, budget).await?;
        let [planned] = planned;
        Ok(match results.first() {
            Some(Ok(done)) => Answer::Commit(Reply::json(done.status, &planned.answer(done))),
            Some(Err(fault)) => Answer::Refuse(refused(fault)),
            None => Answer::Commit(Reply::json(StatusCode::OK, &json!({}))),
        })
    });
    run.await
}

fn refused(fault: &Fault) -> Reply {
    let code = match fault.status {
        StatusCode::BAD_REQUEST => Code::Invalid,
        StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
        _ => Code::Refused,
    };
    let problem = Problem::new(code, &*fault.reason).of_kind(fault.status, fault.kind);
    Reply::problem(&problem, Shape::Server)
}

/// A document in the servers' shape. The content keeps its bytes.
#[derive(Serialize)]
struct Found<'a> {
    _index: &'a str,
    _id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    _routing: Option<&'a str>,
    _version: u64,
    _seq_no: u64,
    _primary_term: u64,
    found: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    _source: Option<&'a RawValue>,
}

/// Reads one document as it is committed.
pub(crate) async fn get(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let routing = asked.parameters.take("routing");
    let with_source = asked.parameters.take_flag("_source")?.unwrap_or(true);
    asked.parameters.take_flag("refresh")?;
    asked.finish_parameters()?;
    asked.named.documents(asked.route.value(0), 1);
    let documents = backend.existing(&asked.caller, Verb::Read, asked.route.value(0)).await?;
    let id = asked.route.value(1);
    let content = content(backend, &documents, id, routing.as_deref()).await?;
    let Some(content) = content else {
        let body = json!({ "_index": documents.name(), "_id": id, "found": false });
        return Ok(Reply::json(StatusCode::NOT_FOUND, &body));
    };
    let Fingerprint { seq_no, primary_term } = Fingerprint::of(content.as_str());
    let source = raw(&content)?;
    let body = Found {
        _index: documents.name(),
        _id: id,
        _routing: routing.as_deref(),
        _version: seq_no,
        _seq_no: seq_no,
        _primary_term: primary_term,
        found: true,
        _source: with_source.then_some(source),
    };
    Ok(Reply::json(StatusCode::OK, &body))
}

/// Reads the content of one document.
pub(crate) async fn source(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    let routing = asked.parameters.take("routing");
    asked.parameters.take_flag("refresh")?;
    asked.finish_parameters()?;
    asked.named.documents(asked.route.value(0), 1);
    let documents = backend.existing(&asked.caller, Verb::Read, asked.route.value(0)).await?;
    let id = asked.route.value(1);
    match content(backend, &documents, id, routing.as_deref()).await? {
        Some(content) => Ok(Reply::json(StatusCode::OK, &raw(&content)?)),
        None => {
            let detail = format!("document not found [{}]/[{id}]", documents.name());
            Err(Problem::new(Code::NotFound, detail))
        }
    }
}

async fn content(
    backend: &Backend,
    documents: &Collection<Raw>,
    id: &str,
    routing: Option<&str>,
) -> Result<Option<Raw>, Problem> {
    let id = match routing {
        Some(routing) => DocumentId::routed(id, routing),
        None => id.into(),
    };
    Ok(backend.domain.reader().verified().get(documents, id).await?)
}

/// The content as raw JSON.
pub(crate) fn raw(content: &Raw) -> Result<&RawValue, Problem> {
    serde_json::from_str(content.as_str())
        .map_err(|_| Problem::new(Code::Damaged, "the stored document is not JSON"))
}
