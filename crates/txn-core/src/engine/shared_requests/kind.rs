//! The three calls of a store whose requests are shared.

use futures::future::BoxFuture;

use crate::store::{Key, Outcome, Read, Store, StoreError, StoreErrorKind, Write};

/// One of the calls: a list of operations, and an answer for each.
pub(super) trait Kind: Send + Sync + 'static {
    type Operation: Clone + Send + Sync;
    type Answer: Send;

    /// Sends one request.
    fn send<'a>(
        store: &'a dyn Store,
        operations: &'a [Self::Operation],
    ) -> BoxFuture<'a, Vec<Self::Answer>>;

    /// About how many bytes of a request it takes.
    fn bytes(operation: &Self::Operation) -> usize;

    /// The answer to what was sent and not answered.
    fn unanswered() -> Self::Answer;

    /// The answer to what was never sent.
    fn unsent() -> Self::Answer;
}

/// What a request says about an operation beside its document and its names.
const BESIDE: usize = 200;

const UNANSWERED: &str = "the store answered for too few operations";

const UNSENT: &str = "not sent: the runtime that carried the requests has ended";

fn bytes_of(key: &Key) -> usize {
    let routing = key.routing.as_ref().map_or(0, |routing| routing.len());
    BESIDE + key.collection.len() + key.id.len() + routing
}

fn unavailable(why: &str) -> Read {
    Read::Unavailable(StoreError::new(StoreErrorKind::Unavailable, why))
}

/// [`Store::get_many`].
pub(super) struct AnyCopy;

impl Kind for AnyCopy {
    type Operation = Key;
    type Answer = Read;

    fn send<'a>(store: &'a dyn Store, keys: &'a [Key]) -> BoxFuture<'a, Vec<Read>> {
        store.get_many(keys)
    }

    fn bytes(key: &Key) -> usize {
        bytes_of(key)
    }

    fn unanswered() -> Read {
        unavailable(UNANSWERED)
    }

    fn unsent() -> Read {
        unavailable(UNSENT)
    }
}

/// [`Store::read_primary`].
pub(super) struct Primary;

impl Kind for Primary {
    type Operation = Key;
    type Answer = Read;

    fn send<'a>(store: &'a dyn Store, keys: &'a [Key]) -> BoxFuture<'a, Vec<Read>> {
        store.read_primary(keys)
    }

    fn bytes(key: &Key) -> usize {
        bytes_of(key)
    }

    fn unanswered() -> Read {
        unavailable(UNANSWERED)
    }

    fn unsent() -> Read {
        unavailable(UNSENT)
    }
}

/// [`Store::write_many`].
pub(super) struct Writes;

impl Kind for Writes {
    type Operation = Write;
    type Answer = Outcome;

    fn send<'a>(store: &'a dyn Store, writes: &'a [Write]) -> BoxFuture<'a, Vec<Outcome>> {
        store.write_many(writes)
    }

    fn bytes(write: &Write) -> usize {
        bytes_of(&write.key) + write.op.source_len()
    }

    fn unanswered() -> Outcome {
        Outcome::Unknown(UNANSWERED.to_owned())
    }

    fn unsent() -> Outcome {
        Outcome::Rejected(UNSENT.to_owned())
    }
}
