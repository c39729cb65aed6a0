//! The traces of a request: its line in the audit log, its metrics, and its sample.

use std::sync::Arc;
use std::time::Instant;

use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use metrics::{counter, histogram};

use crate::audit::{CUT, Named};
use crate::figures;
use crate::http::shape::Shape;
use crate::http::site::Peer;
use crate::samples::Samples;

/// A request between its head and its answer.
///
/// A connection may end before the answer, and the work may be done all the same. So the traces are
/// written at the latest when the exchange is dropped.
pub(crate) struct Exchange<'a> {
    began: Instant,
    domain: &'a str,
    samples: &'a Samples,
    named: Arc<Named>,
    peer: Option<Peer>,
    method: Method,
    path: &'static str,
    shape: Shape,
    is_probe: bool,
    end: Option<End>,
}

/// The answer of a request.
struct End {
    status: StatusCode,
    code: &'static str,
    commits: bool,
}

impl<'a> Exchange<'a> {
    pub(crate) fn begin(
        parts: &Parts,
        named: Arc<Named>,
        (path, shape, is_probe): (&'static str, Shape, bool),
        (domain, samples): (&'a str, &'a Samples),
    ) -> Self {
        let (began, peer) = (Instant::now(), parts.extensions.get().copied());
        let (method, end) = (parts.method.clone(), None);
        Self { began, domain, samples, named, peer, method, path, shape, is_probe, end }
    }

    /// Ends with an answer. `code` is that of a problem.
    pub(crate) fn answered(mut self, status: StatusCode, code: &'static str, commits: bool) {
        self.end = Some(End { status, code, commits });
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        let taken = self.began.elapsed();
        let (status, code, label) = match &self.end {
            Some(End { status, code, .. }) => (status.as_u16(), *code, status.as_str().to_owned()),
            None => (0, CUT, CUT.to_owned()),
        };
        if !self.is_probe {
            self.named.log(self.peer, (&self.method, self.path), (status, code));
        }
        if let Some(End { status, commits, .. }) = &self.end
            && !self.is_probe
            // The operator's look must not change the plots.
            && self.shape != Shape::Page
        {
            self.samples.note(taken, *status, *commits);
        }
        let domain = self.domain.to_owned();
        counter!(figures::REQUESTS, "domain" => domain.clone(), "path" => self.path, "status" => label)
            .increment(1);
        histogram!(figures::SECONDS, "domain" => domain, "path" => self.path).record(taken);
    }
}
