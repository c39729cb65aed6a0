//! Reads of several documents in one transaction, each with a token.

use std::collections::BTreeSet;

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use txn_core::store::Key;
use txn_core::{Collection, DocumentId, Error, Raw, Transaction};
use txn_requests::Target;

use crate::access::caller::Caller;
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::{Backend, no_collection};
use crate::documents::fingerprint::token;
use crate::documents::single::raw;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;

/// The body of a read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    targets: Vec<Target>,
}

/// The answer of a read.
#[derive(Serialize)]
struct Documents<'a> {
    documents: Vec<Document<'a>>,
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

/// The effect of a read of a missing collection, if a write would create it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Missing {
    /// The document counts as missing.
    Absent,
    /// The collection is created, so that the transaction can verify that the document is missing.
    Create,
}

/// An address, and its open collection.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) target: Target,
    /// `None` if there is no such collection yet.
    documents: Option<Collection<Raw>>,
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

    fn key(&self) -> Option<Key> {
        self.documents.as_ref().map(|documents| documents.key(self.id()))
    }

    fn id(&self) -> DocumentId {
        match &self.target.routing {
            Some(routing) => DocumentId::routed(&self.target.id, routing),
            None => self.target.id.as_str().into(),
        }
    }
}

/// Reads documents in a transaction, in one round trip.
pub(crate) async fn contents(
    tx: &Transaction,
    addresses: &[Address],
) -> Result<Vec<Option<Raw>>, Error> {
    tx.prefetch(addresses.iter().filter_map(Address::key)).await?;
    let mut contents = Vec::with_capacity(addresses.len());
    for address in addresses {
        contents.push(match &address.documents {
            Some(documents) => tx.get(documents, address.id()).await?,
            None => None,
        });
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
pub(crate) async fn read(backend: &Backend, asked: &mut Asked) -> Result<Reply, Problem> {
    asked.finish_parameters()?;
    let Read { targets } = asked.json()?;
    for target in &targets {
        asked.named.documents(&target.collection, 1);
    }
    let addresses = open_all(backend, &asked.caller, targets.into_iter(), Missing::Absent).await?;
    let options = backend.options().with_read_only(true);
    let run =
        backend.domain.run::<_, Error, _>(&options, async |tx| contents(tx, &addresses).await);
    let contents = run.await?.value;
    let bytes: usize = contents.iter().flatten().map(|content| content.as_str().len()).sum();
    let most = backend.config.max_answer;
    if bytes > most {
        let detail = format!("the documents have {bytes} bytes, and an answer at most {most}");
        return Err(Problem::new(Code::LargeAnswer, detail));
    }
    let documents = addresses.iter().zip(&contents);
    let documents =
        documents.map(|(address, content)| Document::new(&address.target, content.as_ref()));
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    Ok(Reply::json(StatusCode::OK, &Documents { documents }))
}
