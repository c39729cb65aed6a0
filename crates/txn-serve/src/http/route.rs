//! Routes: the method and the path of a request.

use hyper::Method;
use percent_encoding::percent_decode_str;

use super::problem::{Code, Problem};
use super::shape::Shape;

macro_rules! routes {
    ($($name:ident: $($method:ident)+ $path:literal, $about:literal;)*) => {
        /// The work that a method and a path ask for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Work {
            $($name,)*
        }

        /// All routes: methods, path, work, and description.
        pub(crate) const ROUTES: &[(&[Method], &str, Work, &str)] = &[
            $((&[$(Method::$method),+], $path, Work::$name, $about),)*
        ];
    };
}

routes! {
    Info: GET HEAD "/", "The name and the version of the gateway";
    Health: GET HEAD "/healthz", "Whether the process runs";
    Ready: GET HEAD "/readyz", "Whether the gateway takes requests and its store answers";
    Metrics: GET "/metrics", "Metrics for Prometheus";
    OpenApi: GET "/openapi.json", "This document";
    Transaction: POST "/_txn", "Carries out operations in one transaction";
    Read: POST "/_txn/read", "Reads documents in one transaction, each with a token";
    Commit: POST "/_txn/commit", "Carries out operations if documents have not changed";
    LockList: GET "/_locks", "The held locks, as `txn lock ls` prints them";
    LockLook: GET "/_locks/{category}/{id}", "The token and the holder of a lock";
    LockAcquire: POST "/_locks/{category}/{id}", "Takes a lock for a client";
    LockRenew: POST "/_locks/{category}/{id}/renew", "Renews the lease of a client";
    LockRelease: POST "/_locks/{category}/{id}/release", "Releases the lock of a client";
    Backlog: GET "/_outbox", "The number of waiting events, as `txn outbox` prints it";
    Emit: POST "/_outbox", "Stores events in one transaction";
    DeadLetters: GET "/_outbox/dead", "The dead letters, as `txn dead list` prints them";
    DeadLetterRetry: POST "/_outbox/dead/{id}/retry", "Returns a dead letter to its queue";
    DeadLetterDrop: POST "/_outbox/dead/{id}/drop", "Deletes a dead letter";
    HttpResult: GET "/_outbox/http/{id}", "The last call of an HTTP request after a commit";
    RequestList: GET "/_requests", "The open requests, as `txn requests ls` prints them";
    RequestSubmit: POST PUT "/_requests/{id}", "Stores a request, which a processor carries out later";
    RequestStatus: GET "/_requests/{id}", "The state of a submitted request";
    RequestCancel: POST "/_requests/{id}/cancel", "Rolls back a request that is not committed";
    DomainStatus: GET "/_txn/status", "The state of the domain, as `txn status` prints it";
    Hanging: GET "/_txn/hanging", "What makes no progress, as `txn hanging` prints it";
    Transactions: GET "/_txn", "The open transactions, as `txn ls` prints them";
    Locks: GET "/_txn/locks", "The locked documents, as `txn locks` prints them";
    Processes: GET "/_txn/processes", "The processes of the domain, as `txn processes` prints them";
    Waits: GET "/_txn/history", "Past waits for locks, as `txn history` prints them";
    Hot: GET "/_txn/hot", "The hottest documents, as `txn hot` prints them";
    TransactionReport: GET "/_txn/transactions/{tid}", "One transaction, as `txn show` prints it";
    DocumentReport: GET "/_txn/documents/{collection}/{id}", "The story of a document, as `txn why` prints it";
    Outcome: GET "/_txn/{tid}", "The outcome of a transaction";
    Console: GET "/_console", "The first page of the console";
    ConsoleStyle: GET "/_console/style.css", "The style of the pages";
    ConsoleTransactions: GET "/_console/transactions", "A page with the open transactions";
    ConsoleTransaction: GET "/_console/transaction", "A page with the story of a transaction";
    ConsoleStuck: GET "/_console/stuck", "A page with everything that makes no progress";
    ConsoleWaits: GET "/_console/waits", "A page with the waits for locks";
    ConsoleDocuments: GET "/_console/documents", "A page with hot and locked documents";
    ConsoleDocument: GET "/_console/document", "A page with the story of a document";
    ConsoleProcesses: GET "/_console/processes", "A page with the processes of the domain";
    ConsolePartitions: GET "/_console/partitions", "A page with the parts of the domain";
    ConfirmAbort: GET "/_console/abort", "Asks before a transaction is aborted";
    Abort: POST "/_console/abort", "Aborts a transaction";
    ConfirmRecover: GET "/_console/recover", "Asks before a janitor pass";
    Recover: POST "/_console/recover", "Carries out a janitor pass";
    Bulk: POST PUT "/_bulk", "Carries out actions, all or nothing";
    BulkOf: POST PUT "/{index}/_bulk", "Carries out actions on one index, all or nothing";
    Get: GET HEAD "/{index}/_doc/{id}", "Reads a document";
    Source: GET HEAD "/{index}/_source/{id}", "Reads the content of a document";
    Index: PUT POST "/{index}/_doc/{id}", "Writes a document";
    Delete: DELETE "/{index}/_doc/{id}", "Deletes a document";
    IndexNew: POST "/{index}/_doc", "Writes a document under a new id";
    Create: PUT POST "/{index}/_create/{id}", "Writes a document that must not exist";
    Update: POST "/{index}/_update/{id}", "Changes a document by a part of it";
    CreateCollection: PUT "/{index}", "Creates a collection, if the gateway may";
    HasCollection: HEAD "/{index}", "Whether the domain has the collection";
}

/// A request by its path.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) work: Work,
    /// The decoded values of the variable parts, in order.
    values: Vec<String>,
}

impl Route {
    /// Finds the route of a request.
    pub(crate) fn find(method: &Method, path: &str) -> Result<Self, Problem> {
        let segments: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
        let (mut others, mut is_literal) = (Vec::new(), false);
        for (methods, template, work, _) in ROUTES {
            // The name of a call is no id and no index.
            if is_literal && template.contains('{') {
                continue;
            }
            let Some(values) = values(template, &segments)? else { continue };
            if methods.contains(method) {
                return Ok(Self { work: *work, values });
            }
            others.extend_from_slice(methods);
            is_literal = values.is_empty();
        }
        match others.is_empty() {
            false => {
                let detail = "the path does not have this method";
                Err(Problem::new(Code::Method, detail).allowing(others))
            }
            true if Shape::of_path(path) != Shape::Server => {
                Err(Problem::new(Code::NotFound, "the gateway has no such path"))
            }
            true => {
                let detail = "the gateway passes this request to its servers, and an embedded file has none; \
                              /openapi.json lists the gateway's own requests";
                Err(Problem::new(Code::NeedsServer, detail))
            }
        }
    }

    /// The value of a variable part.
    pub(crate) fn value(&self, at: usize) -> &str {
        self.values.get(at).map_or("", String::as_str)
    }
}

impl Work {
    pub(crate) fn shape(self) -> Shape {
        Shape::of_path(self.name())
    }

    /// Whether an orchestrator asks, whose requests no limit may refuse.
    pub(crate) fn is_probe(self) -> bool {
        matches!(self, Self::Health | Self::Ready | Self::Metrics)
    }

    /// Whether the request is the form of an operator, which changes something.
    pub(crate) fn is_form(self) -> bool {
        matches!(self, Self::Abort | Self::Recover)
    }

    /// Whether the request commits a transaction.
    pub(crate) fn commits(self) -> bool {
        matches!(
            self,
            Self::Transaction
                | Self::Commit
                | Self::Emit
                | Self::Bulk
                | Self::BulkOf
                | Self::Index
                | Self::IndexNew
                | Self::Create
                | Self::Update
                | Self::Delete
        )
    }

    /// Whether an `Idempotency-Key` gives the request one effect.
    pub(crate) fn takes_key(self) -> bool {
        self.commits() || self == Self::LockAcquire
    }

    /// Whether the request may ask for a new document by `op_type`.
    pub(crate) fn takes_op_type(self) -> bool {
        matches!(self, Self::Index | Self::IndexNew | Self::Create)
    }

    /// Whether the request needs no login.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Health | Self::Ready | Self::ConsoleStyle)
    }

    /// Whether the answer has contents of documents, and nothing was changed.
    pub(crate) fn returns_contents(self) -> bool {
        matches!(self, Self::Get | Self::Source | Self::Read)
    }

    /// The name for metrics.
    pub(crate) fn name(self) -> &'static str {
        let found = ROUTES.iter().find(|(.., work, _)| *work == self);
        found.map_or("", |(_, path, ..)| path)
    }
}

/// The values of the variable parts, if the path has this form.
fn values(template: &str, segments: &[&str]) -> Result<Option<Vec<String>>, Problem> {
    let parts: Vec<&str> = template.strip_prefix('/').unwrap_or(template).split('/').collect();
    if parts.len() != segments.len() {
        return Ok(None);
    }
    let mut values = Vec::new();
    for (part, segment) in parts.iter().zip(segments) {
        if !part.starts_with('{') {
            match part == segment {
                true => continue,
                false => return Ok(None),
            }
        }
        // The names of indices never begin with an underscore; those of the servers' calls do.
        let decoded = percent_decode_str(segment).decode_utf8();
        let decoded = decoded.map_err(|_| Problem::new(Code::Invalid, "the path is not UTF-8"))?;
        if decoded.is_empty() || (*part == "{index}" && decoded.starts_with('_')) {
            return Ok(None);
        }
        values.push(decoded.into_owned());
    }
    Ok(Some(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_found() {
        for (methods, template, work, _) in ROUTES {
            let path = template.replace("{index}", "stock").replace("{id}", "a%2Fb");
            let path = path.replace("{tid}", "tid").replace("{collection}", "c");
            let path = path.replace("{category}", "c");
            for method in *methods {
                let route = Route::find(method, &path).expect("a route");
                assert_eq!(route.work, *work, "{method} {path}");
            }
        }
    }

    #[test]
    fn encoded_underscore_begins_no_index() {
        for path in ["/%5Fbulk", "/%5fall/_doc/a"] {
            assert!(Route::find(&Method::PUT, path).is_err(), "{path}");
        }
    }

    #[test]
    fn variable_parts_are_decoded() {
        let route = Route::find(&Method::GET, "/stock/_doc/a%2Fb%20%C3%A4").expect("a route");
        assert_eq!((route.value(0), route.value(1)), ("stock", "a/b ä"));
    }

    #[test]
    fn other_paths_and_methods_are_told_apart() {
        for path in ["/_search", "/stock/_doc/", "//_doc/a", "/stock/_doc/a/b", "/_x", "/_txns"] {
            let problem = Route::find(&Method::GET, path).expect_err(path);
            assert_eq!(problem.code(), Code::NeedsServer, "{path}");
        }
        for path in
            ["/_txn/a/b", "/_locks/a", "/_outbox/a", "/_requests/a/b", "/_console/", "/_console/a"]
        {
            let problem = Route::find(&Method::GET, path).expect_err("no path");
            assert_eq!(problem.code(), Code::NotFound, "{path}");
        }
        let problem = Route::find(&Method::PATCH, "/_requests/a").expect_err("no method");
        assert_eq!(problem.code(), Code::Method);
        assert_eq!(problem.methods(), [Method::POST, Method::PUT, Method::GET]);
        // The name of a call is no id and no index.
        for (path, methods) in
            [("/_txn/read", vec![Method::POST]), ("/readyz", vec![Method::GET, Method::HEAD])]
        {
            let problem = Route::find(&Method::DELETE, path).expect_err("no method");
            assert_eq!(problem.methods(), methods, "{path}");
        }
    }
}
