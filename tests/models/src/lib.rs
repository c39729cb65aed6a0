//! Models of the protocol, explored exhaustively, with the engine's own decisions.
mod advance;
pub mod board;
mod canonical;
pub mod chains;
pub mod check;
pub mod explicit_insert;
pub mod made_again;
pub mod moved_locks;
pub mod one_document;
mod owner;
pub mod partition_drop;
mod properties;
pub mod protocol;
mod reading;
pub mod refused_writes;
mod resolving;
pub mod scenario;
pub mod state;
mod steps;
pub mod suite;
mod translate;
mod turn;
pub mod two_recoverers;
pub mod validated_reads;
pub mod vanishing_writes;
pub mod wound_wait;

/// All models.
#[must_use]
pub fn all() -> Vec<suite::Suite> {
    vec![
        explicit_insert::suite(),
        moved_locks::suite(),
        made_again::suite(),
        wound_wait::suite(),
        chains::suite(),
        validated_reads::suite(),
        vanishing_writes::suite(),
        two_recoverers::suite(),
        one_document::suite(),
        refused_writes::suite(),
        partition_drop::suite(),
        board::suite(),
    ]
}
