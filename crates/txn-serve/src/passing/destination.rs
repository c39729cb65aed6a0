//! Whether the domain or the servers carry out a request.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::http::request::Parts;
use serde_json::{Value, json};
use txn_es::EsStore;

use super::names::check_names;
use super::owners::{Owner, owner};
use super::paths::segments;
use super::policy::Access;
use super::writes::{Bulk, Entry, Kind, is_literal, refused};
use super::{policy, writes};
use crate::access::caller::Caller;
use crate::access::rights::Verb;
use crate::audit::Named;
use crate::backend::Backend;
use crate::documents::apply::Fault;
use crate::http::problem::{Code, Problem};
use crate::http::route::{Route, Work};

/// The largest number of indices in a bulk that is passed through.
const MOST_INDICES: usize = 100;

/// The place that carries out a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Domain,
    Servers(Access),
}

/// The servers that take requests, and the domain in front of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destinations<'a> {
    backend: &'a Backend,
    servers: &'a EsStore,
    caller: &'a Caller,
    named: &'a Named,
}

impl<'a> Destinations<'a> {
    pub(crate) fn new(
        backend: &'a Backend,
        servers: &'a EsStore,
        caller: &'a Caller,
        named: &'a Named,
    ) -> Self {
        Self { backend, servers, caller, named }
    }

    /// The destination of a request with a path of the gateway.
    pub(crate) async fn of_route(
        self,
        route: &Route,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<Destination, Problem> {
        match route.work {
            Work::Info => return Ok(Destination::Servers(Access::Read)),
            Work::Get | Work::Source | Work::HasCollection => {
                let name = route.value(0);
                self.named.collection(name);
                // Without any right, the answer must not show whose the index is.
                if !self.caller.may(Verb::Read, name) && check_names(self.caller, name).is_err() {
                    return Err(self.caller.forbidden(Some(Verb::Read), Some(name)));
                }
                return Ok(match self.backend.find(name).await? {
                    Some(_) => Destination::Domain,
                    None => Destination::Servers(Access::Read),
                });
            }
            _ => {}
        }
        // Each index that a gateway may turn into a collection is for the domain.
        let config = &self.backend.config;
        if !config.pass_writes || config.create_collections {
            return Ok(Destination::Domain);
        }
        match route.work {
            Work::Bulk => self.of_bulk(None, parts, body).await,
            Work::BulkOf => self.of_bulk(Some(route.value(0)), parts, body).await,
            Work::Index | Work::IndexNew | Work::Create | Work::Update | Work::Delete => {
                checked(self.of_write(route.value(0), Kind::Documents).await?, parts)
            }
            Work::CreateCollection => {
                let destination = self.of_write(route.value(0), Kind::Creation).await?;
                let destination = checked(destination, parts)?;
                if destination != Destination::Domain {
                    let body = std::str::from_utf8(body);
                    let body =
                        body.map_err(|_| Problem::new(Code::Invalid, "the body is not UTF-8"))?;
                    writes::check_creation(body)?;
                }
                Ok(destination)
            }
            _ => Ok(Destination::Domain),
        }
    }

    /// The access of a request whose path only the servers have.
    pub(crate) async fn of_path(self, parts: &Parts, path: &[String]) -> Result<Access, Problem> {
        if let Some(name) = path.first().filter(|name| !name.starts_with('_')) {
            self.named.collection(name);
        }
        match policy::judge(&parts.method, path) {
            Ok(()) => return Ok(Access::Read),
            Err(problem) if !self.backend.config.pass_writes => return Err(problem),
            Err(_) => {}
        }
        let (kind, index) = writes::judge(&parts.method, parts.uri.path(), path)?;
        let Some(index) = index else { return Err(refused("the request names no index")) };
        match self.of_write(index, kind).await? {
            Destination::Servers(access) => {
                writes::check_parameters(parts.uri.query())?;
                Ok(access)
            }
            Destination::Domain => {
                let detail = format!(
                    "the index {index} belongs to the domain: send the request to the servers"
                );
                Err(refused(detail))
            }
        }
    }

    /// The destination of a write to an index of the path.
    async fn of_write(self, index: &str, kind: Kind) -> Result<Destination, Problem> {
        let destination = self.of_name(index, kind).await?;
        if destination != Destination::Domain {
            self.named.documents(index, usize::from(kind == Kind::Documents));
        }
        Ok(destination)
    }

    /// The destination of a write to an index.
    ///
    /// A name that is not literal is for the domain, which refuses a name that it does not have.
    async fn of_name(self, name: &str, kind: Kind) -> Result<Destination, Problem> {
        // Without any right, the answer must not show whose the index is.
        let for_domain = match kind {
            Kind::Documents => Verb::Write,
            Kind::Creation => Verb::Create,
            Kind::Index => Verb::PassWrites,
        };
        self.caller.need_one(&[for_domain, Verb::PassWrites], name)?;
        let destination = self.of_permitted(name, kind).await?;
        if destination != Destination::Domain {
            self.caller.need(Verb::PassWrites, name)?;
        }
        Ok(destination)
    }

    async fn of_permitted(self, name: &str, kind: Kind) -> Result<Destination, Problem> {
        let backend = self.backend;
        let is_known = backend.operations.open_collection(name).is_some();
        if is_known || !is_literal(name) || backend.operations.check_name(name).is_err() {
            return Ok(Destination::Domain);
        }
        let collections = backend.collections().await?;
        match owner(self.servers, name, backend.domain.name(), &collections).await? {
            Owner::Missing if kind == Kind::Documents => {
                match self.servers.template_pipeline(name).await {
                    Some(pipeline) => Err(redirected(name, &pipeline)),
                    None => Ok(Destination::Servers(Access::Write)),
                }
            }
            Owner::Application { pipeline: Some(pipeline) } if kind == Kind::Documents => {
                Err(redirected(name, &pipeline))
            }
            Owner::Missing | Owner::Application { .. } => Ok(Destination::Servers(Access::Write)),
            Owner::Domain => {
                // Another process may have created the collection just now.
                backend.forget_foreign(name);
                Ok(Destination::Domain)
            }
            Owner::Engine => Err(refused(format!(
                "{name} stands for an index of another domain, or of the engine"
            ))),
        }
    }

    /// The destination of a bulk. All its actions have the same one.
    async fn of_bulk(
        self,
        index: Option<&str>,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<Destination, Problem> {
        let bulk = std::str::from_utf8(body).ok().and_then(|body| writes::read_bulk(body, index));
        // The domain refuses a bulk that cannot be read, and says why.
        let Some(Bulk { entries, unfit }) = bulk else { return Ok(Destination::Domain) };
        let (mut destinations, mut passed) = (BTreeMap::<&str, Destination>::new(), 0);
        for entry in &entries {
            if destinations.contains_key(&*entry.index) {
                continue;
            }
            let destination = self.of_name(&entry.index, Kind::Documents).await?;
            destinations.insert(&entry.index, destination);
            passed += usize::from(destination != Destination::Domain);
            if passed > MOST_INDICES {
                let detail =
                    format!("a bulk that is passed through has at most {MOST_INDICES} indices");
                return Err(refused(detail));
            }
        }
        let for_domain = |entry: &Entry| destinations[&*entry.index] == Destination::Domain;
        if entries.iter().all(for_domain) {
            return Ok(Destination::Domain);
        }
        if entries.iter().any(for_domain) {
            return Err(mixed(&entries, for_domain));
        }
        for entry in &entries {
            self.named.documents(&entry.index, 1);
        }
        if let Some(name) = unfit {
            return Err(refused(format!(
                "the gateway passes no action with the field {name:?} through"
            )));
        }
        checked(Destination::Servers(Access::Write), parts)
    }
}

/// Refuses a write of an unknown form for the servers.
///
/// The path or the parameters of the write have no known form.
fn checked(destination: Destination, parts: &Parts) -> Result<Destination, Problem> {
    if destination != Destination::Domain {
        let path = segments(parts.uri.path())?;
        writes::judge(&parts.method, parts.uri.path(), &path)?;
        writes::check_parameters(parts.uri.query())?;
    }
    Ok(destination)
}

/// The refusal of a document whose index has a pipeline.
fn redirected(name: &str, pipeline: &str) -> Problem {
    refused(format!(
        "the index {name} has the ingest pipeline {pipeline}, which could write to another index: send the request to \
         the servers"
    ))
}

/// The refusal of a bulk for collections and for other indices. Each action has an item.
fn mixed(entries: &[Entry], for_domain: impl Fn(&Entry) -> bool) -> Problem {
    let item = |entry: &Entry| {
        let Entry { verb, index, id } = entry;
        let fault = match for_domain(entry) {
            true => Fault::untouched(),
            false => Fault {
                status: StatusCode::BAD_REQUEST,
                kind: "illegal_argument_exception",
                reason: format!(
                    "{index} is no collection of the domain, and other actions are for collections"
                ),
            },
        };
        json!({ (*verb): fault.answer(index, id.as_deref()) })
    };
    let items: Vec<Value> = entries.iter().map(item).collect();
    let name = |wanted: bool| {
        let found = entries.iter().find(|entry| for_domain(entry) == wanted);
        found.map_or("", |entry| &*entry.index)
    };
    let detail = format!(
        "the bulk writes to the collection {} and to the index {}, which is none: send two bulks",
        name(true),
        name(false)
    );
    Problem::new(Code::Mixed, detail).beside("errors", true).beside("items", items)
}
