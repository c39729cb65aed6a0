//! The requests of a transaction as they look on the wire: for rules of the proxy.

use txn_testkit::proxy::{Matching, Route};

/// Takes locks, with the dry runs of the new contents.
#[must_use]
pub fn locks() -> Matching {
    Matching::route(Route::Bulk).with_body("\"transaction_tid\":\"").without_body("\"state\":\"")
}

/// Verifies what was only read.
#[must_use]
pub fn validates() -> Matching {
    Matching::route(Route::Bulk).with_body("{\"update\":").with_body("if_seq_no")
}

/// Writes the record as committed.
#[must_use]
pub fn commits() -> Matching {
    Matching::route(Route::Bulk).with_body("\"state\":\"committed\"")
}

/// Writes new contents, without locks. Dry runs look the same, but for a condition that nobody meets.
#[must_use]
pub fn applies() -> Matching {
    Matching::route(Route::Bulk)
        .with_body("\"transaction_recent\"")
        .without_body("\"transaction_tid\"")
        .without_body("9007199254740991")
        .without_body("\"state\":\"")
}

/// Writes the record as finished.
#[must_use]
pub fn finishes() -> Matching {
    Matching::route(Route::Bulk).with_body("\"state\":\"finished\"")
}
