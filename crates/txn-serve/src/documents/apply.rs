//! Actions in a transaction, and their answers in the servers' shape.

use hyper::StatusCode;
use serde_json::{Value, json};
use txn_core::json::Image;
use txn_core::store::RefusalKind;
use txn_core::{Collection, DocumentId, Domain, Error, Raw, Transaction};
use txn_lock::exact;

use super::action::{Action, Change};
use super::fingerprint::Fingerprint;
use super::merge::merged;
use crate::http::limits::{ONE_READ, ReadBudget};
use crate::http::problem::Problem;

const CONFLICT: &str = "version_conflict_engine_exception";

/// An action, and its open collection.
#[derive(Clone, Debug)]
pub(crate) struct Planned<'a> {
    pub(crate) action: Action<'a>,
    pub(crate) documents: Collection<Raw>,
}

/// The effect of an action.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) result: &'static str,
    pub(crate) status: StatusCode,
    fingerprint: Fingerprint,
}

/// The reason why an action is refused.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) reason: String,
}

impl Fault {
    /// The reason for a fitting action in a refused bulk.
    ///
    /// Another action of the bulk was refused.
    pub(crate) fn untouched() -> Self {
        Self {
            status: StatusCode::FAILED_DEPENDENCY,
            kind: "txn_aborted_exception",
            reason: "another action of the bulk was refused: nothing was changed".to_owned(),
        }
    }

    /// The answer of a refused action.
    pub(crate) fn answer(&self, index: &str, id: Option<&str>) -> Value {
        json!({
            "_index": index,
            "_id": id,
            "status": self.status.as_u16(),
            "error": { "type": self.kind, "reason": self.reason, "index": index },
        })
    }
}

impl Planned<'_> {
    fn id(&self) -> DocumentId {
        match &self.action.routing {
            Some(routing) => DocumentId::routed(&self.action.id, routing),
            None => self.action.id.as_str().into(),
        }
    }

    /// The answer of a done action, as the servers write it.
    pub(crate) fn answer(&self, done: &Done) -> Value {
        let Fingerprint { seq_no, primary_term } = done.fingerprint;
        json!({
            "_index": self.documents.name(),
            "_id": self.action.id,
            "_version": seq_no,
            "result": done.result,
            // The gateway does not know the copies of the store.
            "_shards": { "total": 1, "successful": 1, "failed": 0 },
            "_seq_no": seq_no,
            "_primary_term": primary_term,
        })
    }

    /// The answer of a refused action.
    pub(crate) fn refusal(&self, fault: &Fault) -> Value {
        fault.answer(self.documents.name(), Some(&self.action.id))
    }
}

/// Carries out actions in their order. Each action sees the effects of the earlier ones.
///
/// After a fault the transaction must not commit.
pub(crate) async fn carry_out(
    domain: &Domain,
    tx: &Transaction,
    planned: &[Planned<'_>],
    budget: &ReadBudget,
) -> Result<Vec<Result<Done, Fault>>, Problem> {
    let mut results = Vec::with_capacity(planned.len());
    let mut bytes = 0;
    for part in planned.chunks(ONE_READ) {
        tx.prefetch(part.iter().map(|planned| planned.documents.key(planned.id()))).await?;
        for planned in part {
            let found = tx.get(&planned.documents, planned.id()).await?;
            bytes += found.as_ref().map_or(0, |found| found.as_str().len());
            results.push(one(domain, tx, planned, found.as_ref().map(Raw::as_str))?);
        }
        budget.reserve(bytes)?;
    }
    Ok(results)
}

fn one(
    domain: &Domain,
    tx: &Transaction,
    planned: &Planned<'_>,
    found: Option<&str>,
) -> Result<Result<Done, Fault>, Error> {
    let (documents, action) = (&planned.documents, &planned.action);
    if let Some(fault) = action.condition.and_then(|condition| unmet(action, condition, found)) {
        return Ok(Err(fault));
    }
    let put = |content: &str, result, status| {
        let image = match checked(domain, planned, content) {
            Ok(image) => image,
            Err(fault) => return Ok(Err(fault)),
        };
        let fingerprint = Fingerprint::of(image.as_str());
        tx.put(documents, planned.id(), &Raw::new(image.as_str()))?;
        Ok(Ok(Done { result, status, fingerprint }))
    };
    match (&action.change, found) {
        (Change::Index(content) | Change::Create(content), None) => {
            put(content, "created", StatusCode::CREATED)
        }
        (Change::Index(content), Some(_)) => put(content, "updated", StatusCode::OK),
        (Change::Create(_), Some(_)) => {
            let reason = format!("[{}]: version conflict, document already exists", action.id);
            Ok(Err(Fault { status: StatusCode::CONFLICT, kind: CONFLICT, reason }))
        }
        (Change::Update(update), None) => match update.content_if_missing() {
            Some(content) => put(content, "created", StatusCode::CREATED),
            None => {
                let reason = format!("[{}]: document missing", action.id);
                let kind = "document_missing_exception";
                Ok(Err(Fault { status: StatusCode::NOT_FOUND, kind, reason }))
            }
        },
        (Change::Update(update), Some(found)) => {
            let content = match merged(found, update.part().unwrap_or("{}")) {
                Ok(content) => content,
                Err(reason) => return Ok(Err(unfit(reason))),
            };
            if update.skips_equal() && exact::same(found, &content) {
                let (result, status) = ("noop", StatusCode::OK);
                return Ok(Ok(Done { result, status, fingerprint: Fingerprint::of(found) }));
            }
            put(&content, "updated", StatusCode::OK)
        }
        (Change::Delete, found) => {
            if found.is_some() {
                tx.delete(documents, planned.id())?;
            }
            Ok(Ok(deletion(found.is_some())))
        }
    }
}

/// The result of a deletion. As on the servers, a missing document is no fault.
fn deletion(was_there: bool) -> Done {
    let (result, status) = match was_there {
        true => ("deleted", StatusCode::OK),
        false => ("not_found", StatusCode::NOT_FOUND),
    };
    Done { result, status, fingerprint: Fingerprint::of("") }
}

/// The fault of a condition that does not hold.
fn unmet(action: &Action<'_>, condition: Fingerprint, found: Option<&str>) -> Option<Fault> {
    let Fingerprint { seq_no, primary_term } = condition;
    let current = match found.map(Fingerprint::of) {
        Some(found) if found == condition => return None,
        Some(found) => format!(
            "current document has seqNo [{}] and primary term [{}]",
            found.seq_no, found.primary_term
        ),
        None => "but no document was found".to_owned(),
    };
    let reason = format!(
        "[{}]: version conflict, required seqNo [{seq_no}], primary term [{primary_term}]. {current}",
        action.id
    );
    Some(Fault { status: StatusCode::CONFLICT, kind: CONFLICT, reason })
}

/// Checks a content before its write.
///
/// Thus the fault names the action of the content.
fn checked(domain: &Domain, planned: &Planned<'_>, content: &str) -> Result<Image, Fault> {
    let image = Image::parse(content).map_err(|error| unfit(error.to_string()))?;
    let key = planned.documents.key(planned.id());
    match domain.store().limits().check(&key, image.as_str().len()) {
        Ok(()) => Ok(image),
        Err(refusal) if refusal.kind == RefusalKind::TooLarge => {
            let (status, kind) = (StatusCode::PAYLOAD_TOO_LARGE, "content_too_long_exception");
            Err(Fault { status, kind, reason: refusal.reason })
        }
        Err(refusal) => {
            let (status, kind) = (StatusCode::BAD_REQUEST, "illegal_argument_exception");
            Err(Fault { status, kind, reason: refusal.reason })
        }
    }
}

fn unfit(reason: String) -> Fault {
    Fault { status: StatusCode::BAD_REQUEST, kind: "document_parsing_exception", reason }
}
