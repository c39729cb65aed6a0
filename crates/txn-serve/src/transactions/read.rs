//! Reads of several documents in one transaction, each with a token.

use std::collections::{BTreeMap, BTreeSet};

use hyper::StatusCode;
use metrics::counter;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use txn_core::store::Key;
use txn_core::{Collection, DocumentId, Error, Raw, Transaction};
use txn_requests::Target;

use super::reservation::Reservation;
use crate::access::caller::Caller;
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::{Backend, no_collection};
use crate::documents::fingerprint::token;
use crate::documents::single::raw;
use crate::figures;
use crate::http::limits::{ONE_READ, ReadBudget};
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;

/// The body of a read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    targets: Vec<Target>,
    #[serde(default)]
    for_update: bool,
}

/// The answer of a read.
#[derive(Serialize)]
struct Documents<'a> {
    documents: Vec<Document<'a>>,
    /// The id of the reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<String>,
    /// Whether a commit has passed a content on. It may still run, and fail.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    undecided: bool,
}

/// A document as it was read. The token stands for its content.
#[derive(Serialize)]
pub(crate) struct Document<'a> {
    target: &'a Target,
    token: String,
    /// The content; `null` for a missing document.
    document: Option<&'a RawValue>,
}

impl<'a> Document<'a> {
    pub(crate) fn new(target: &'a Target, content: Option<&'a Raw>) -> Result<Self, Problem> {
        let token = token(content.map(Raw::as_str));
        let document = content.map(raw).transpose()?;
        Ok(Self { target, token, document })
    }
}

/// The effect of a read of a missing collection. A write would create the collection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Missing {
    /// The document counts as missing.
    Absent,
    /// The collection is created. Thus the transaction can verify that the document is missing.
    Create,
}

/// An address, and its open collection.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) target: Target,
    /// `None` if there is no such collection yet.
    pub(super) documents: Option<Collection<Raw>>,
}

impl Address {
    async fn open(
        backend: &Backend,
        caller: &Caller,
        target: Target,
        missing: Missing,
    ) -> Result<Self, Problem> {
        let name = &target.collection;
        caller.need(Verb::Read, name)?;
        let documents = match (backend.find(name).await?, missing) {
            (Some(documents), _) => Some(documents),
            (None, _) if !backend.config.create_collections => return Err(no_collection(name)),
            (None, Missing::Absent) => None,
            (None, Missing::Create) => Some(backend.create(caller, name, None).await?),
        };
        Ok(Self { target, documents })
    }

    /// Reads the document in a transaction.
    pub(super) async fn content(&self, tx: &Transaction) -> Result<Option<Raw>, Error> {
        match &self.documents {
            Some(documents) => tx.get(documents, self.id()).await,
            None => Ok(None),
        }
    }

    pub(super) fn key(&self) -> Option<Key> {
        self.documents.as_ref().map(|documents| documents.key(self.id()))
    }

    pub(super) fn id(&self) -> DocumentId {
        id_of(&self.target)
    }
}

pub(super) fn id_of(target: &Target) -> DocumentId {
    match &target.routing {
        Some(routing) => DocumentId::routed(&target.id, routing),
        None => target.id.as_str().into(),
    }
}

/// Reads documents in a transaction, with a round trip for each [`ONE_READ`] of them.
///
/// # Errors
/// Errors of the engine, and of the budget.
pub(crate) async fn contents(
    tx: &Transaction,
    addresses: &[&Address],
    budget: &ReadBudget,
) -> Result<Vec<Option<Raw>>, Problem> {
    let mut contents = Vec::with_capacity(addresses.len());
    let mut bytes = 0;
    for part in addresses.chunks(ONE_READ) {
        tx.prefetch(part.iter().filter_map(|address| address.key())).await?;
        for address in part {
            let content = address.content(tx).await?;
            bytes += content.as_ref().map_or(0, |content| content.as_str().len());
            contents.push(content);
        }
        budget.reserve(bytes)?;
    }
    Ok(contents)
}

/// Opens the collections of many documents.
pub(crate) async fn open_all(
    backend: &Backend,
    caller: &Caller,
    targets: impl ExactSizeIterator<Item = Target>,
    missing: Missing,
) -> Result<Vec<Address>, Problem> {
    let most = backend.config.max_documents;
    if targets.len() > most {
        let detail = format!("the request reads more than {most} documents");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    let mut addresses = Vec::with_capacity(targets.len());
    let mut named = BTreeSet::new();
    for target in targets {
        let address = Address::open(backend, caller, target, missing).await?;
        if address.key().is_some_and(|key| !named.insert(key)) {
            let Target { collection, id, .. } = &address.target;
            let detail = format!("the request reads {collection}/{id} twice");
            return Err(Problem::new(Code::Invalid, detail));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// Reads documents in a read-only transaction.
///
/// A read for update waits for its turn among the other reads for update.
pub(crate) async fn read(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.finish_parameters()?;
    let Read { targets, for_update } = asked.json()?;
    for target in &targets {
        asked.named.documents(&target.collection, 1);
    }
    let addresses = open_all(backend, &asked.caller, targets.into_iter(), Missing::Absent).await?;
    let keys: BTreeSet<Key> = addresses.iter().filter_map(Address::key).collect();
    let reservation = match for_update && !keys.is_empty() {
        true => backend.reservations.reserve(keys.clone()).await,
        false => None,
    };
    let newest: BTreeMap<Key, Option<Raw>> = reservation
        .iter()
        .flat_map(|reservation| keys.iter().map(move |key| (key, reservation.newest(key))))
        .filter_map(|(key, newest)| Some((key.clone(), newest?)))
        .collect();
    let contents = contents_beside(backend, &addresses, &newest, &asked.budget).await?;
    asked.budget.reserve(contents.iter().flatten().map(|content| content.as_str().len()).sum())?;
    let documents = addresses.iter().zip(&contents);
    let documents =
        documents.map(|(address, content)| Document::new(&address.target, content.as_ref()));
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    let reservation = reservation.map(Reservation::keep);
    let undecided = !newest.is_empty();
    if for_update {
        let result = match (&reservation, undecided) {
            (None, _) => "unreserved",
            (Some(_), false) => "reserved",
            (Some(_), true) => "undecided",
        };
        let domain = backend.domain.name().to_owned();
        counter!(figures::UPDATE_READS, "domain" => domain, "result" => result).increment(1);
    }
    Ok(Reply::json(StatusCode::OK, &Documents { documents, reservation, undecided }))
}

/// The contents of documents. A read of the others completes those that commits have passed on.
async fn contents_beside(
    backend: &Backend,
    addresses: &[Address],
    newest: &BTreeMap<Key, Option<Raw>>,
    budget: &ReadBudget,
) -> Result<Vec<Option<Raw>>, Problem> {
    let known = |address: &&Address| address.key().is_some_and(|key| newest.contains_key(&key));
    let unknown: Vec<&Address> = addresses.iter().filter(|address| !known(address)).collect();
    let mut read = Vec::new();
    if newest.is_empty() || !unknown.is_empty() {
        let options = backend.options().with_read_only(true);
        let run = backend.domain.run(&options, async |tx| contents(tx, &unknown, budget).await);
        read = run.await?.value;
    }
    let mut read = read.into_iter();
    let content = |address: &Address| match address.key().and_then(|key| newest.get(&key)) {
        Some(newest) => newest.clone(),
        None => read.next().flatten(),
    };
    Ok(addresses.iter().map(content).collect())
}
