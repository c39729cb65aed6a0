//! The metrics of the gateway, for the `metrics` crate.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Ended requests.
pub(crate) const REQUESTS: &str = "txn_http_requests_total";

/// The time of requests.
pub(crate) const SECONDS: &str = "txn_http_request_seconds";

/// Running requests.
pub(crate) const RUNNING: &str = "txn_http_requests_running";

/// Reads for update.
pub(crate) const UPDATE_READS: &str = "txn_http_update_reads_total";

/// Changed files that do not fit.
pub(crate) const BROKEN_FILES: &str = "txn_http_broken_files_total";

/// Tells the recorder of the process about the metrics.
pub(crate) fn describe() {
    describe_counter!(
        REQUESTS,
        Unit::Count,
        "Ended requests, by path and status; `cut` without an answer."
    );
    describe_histogram!(
        SECONDS,
        Unit::Seconds,
        "The time from the head of a request to its answer."
    );
    describe_counter!(
        UPDATE_READS,
        Unit::Count,
        "Reads for update, with and without a reservation, and on undecided contents."
    );
    describe_counter!(
        BROKEN_FILES,
        Unit::Count,
        "Changes of a watched file that does not fit, so that its former content holds."
    );
    describe_gauge!(RUNNING, Unit::Count, "Requests that run now.");
}
