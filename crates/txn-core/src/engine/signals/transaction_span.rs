//! The span of a transaction: the root of its trace.

use tracing::Span;
use tracing::field::Empty;

use crate::error::Error;
use txn_protocol::ids::AttemptId;

/// Opens the span of a transaction, and records the end.
///
/// The steps of all attempts are children of this span. Names with a point are those of
/// OpenTelemetry. A span has ids, states and counts, and no contents.
#[derive(Debug)]
pub(crate) struct TransactionSpan {
    span: Span,
    ended: bool,
}

impl TransactionSpan {
    pub(crate) fn open(domain: &str, tid: AttemptId, label: Option<&str>) -> Self {
        let span = tracing::info_span!(
            "transaction",
            db.namespace = domain,
            db.operation.name = "transaction",
            %tid,
            label,
            attempts = Empty,
            outcome = Empty,
            error.r#type = Empty,
            otel.status_code = Empty,
        );
        Self { span, ended: false }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    pub(crate) fn committed(&mut self, attempts: u16) {
        self.end("committed", attempts);
    }

    /// The application ended the transaction.
    pub(crate) fn rolled_back(&mut self, attempts: u16) {
        self.end("rolled_back", attempts);
    }

    pub(crate) fn failed(&mut self, attempts: u16, error: &Error) {
        self.span.record("error.type", tracing::field::debug(error.kind()));
        self.span.record("otel.status_code", "ERROR");
        self.end("failed", attempts);
    }

    fn end(&mut self, outcome: &str, attempts: u16) {
        self.ended = true;
        self.span.record("outcome", outcome).record("attempts", attempts);
    }
}

/// A transaction without an end lost its caller.
impl Drop for TransactionSpan {
    fn drop(&mut self) {
        if !self.ended {
            self.span.record("outcome", "abandoned");
        }
    }
}
