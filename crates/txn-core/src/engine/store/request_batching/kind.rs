//! The three store calls whose operations share requests.

use std::sync::Arc;

use futures::future::BoxFuture;

use txn_store::{Key, Outcome, Read, Store, StoreError, StoreErrorKind, Write};

/// A store call with many operations, and an answer for each.
pub(super) trait Kind: Send + Sync + 'static {
    type Operation: Operation;

    /// Sends one request.
    fn send<'a>(
        store: &'a dyn Store,
        operations: &'a [Self::Operation],
    ) -> BoxFuture<'a, Vec<AnswerOf<Self>>>;
}

/// The answer to an operation of this kind.
pub(super) type AnswerOf<K> = <<K as Kind>::Operation as Operation>::Answer;

/// An operation on one document.
pub(super) trait Operation: Clone + Send + Sync {
    type Answer: Send;

    fn collection(&self) -> &Arc<str>;

    /// The approximate number of bytes in a request.
    fn bytes(&self) -> usize;

    /// The answer to an operation that was sent and not answered.
    fn unanswered() -> Self::Answer;

    /// The answer to a sent operation whose runtime has ended.
    fn abandoned() -> Self::Answer;

    /// The answer to an operation that was never sent.
    fn unsent() -> Self::Answer;
}

/// The overhead of an operation in a request, without names and content.
const BESIDE: usize = 200;

const UNANSWERED: &str = "the store answered for too few operations";

const ABANDONED: &str = "the runtime that carried the request has ended, before it was answered";

const UNSENT: &str = "not sent: the runtime that carried the requests has ended";

fn unavailable(why: &str) -> Read {
    Read::Unavailable(StoreError::new(StoreErrorKind::Unavailable, why))
}

impl Operation for Key {
    type Answer = Read;

    fn collection(&self) -> &Arc<str> {
        &self.collection
    }

    fn bytes(&self) -> usize {
        let routing = self.routing.as_ref().map_or(0, |routing| routing.len());
        BESIDE + self.collection.len() + self.id.len() + routing
    }

    fn unanswered() -> Read {
        unavailable(UNANSWERED)
    }

    fn abandoned() -> Read {
        unavailable(ABANDONED)
    }

    fn unsent() -> Read {
        unavailable(UNSENT)
    }
}

impl Operation for Write {
    type Answer = Outcome;

    fn collection(&self) -> &Arc<str> {
        &self.key.collection
    }

    fn bytes(&self) -> usize {
        self.key.bytes() + self.op.source_len()
    }

    fn unanswered() -> Outcome {
        Outcome::Unknown(UNANSWERED.to_owned())
    }

    fn abandoned() -> Outcome {
        Outcome::Unknown(ABANDONED.to_owned())
    }

    fn unsent() -> Outcome {
        Outcome::Rejected(UNSENT.to_owned())
    }
}

/// [`Store::get_many`].
pub(super) struct AnyCopy;

impl Kind for AnyCopy {
    type Operation = Key;

    fn send<'a>(store: &'a dyn Store, keys: &'a [Key]) -> BoxFuture<'a, Vec<Read>> {
        store.get_many(keys)
    }
}

/// [`Store::read_primary`].
pub(super) struct Primary;

impl Kind for Primary {
    type Operation = Key;

    fn send<'a>(store: &'a dyn Store, keys: &'a [Key]) -> BoxFuture<'a, Vec<Read>> {
        store.read_primary(keys)
    }
}

/// [`Store::write_many`].
pub(super) struct Writes;

impl Kind for Writes {
    type Operation = Write;

    fn send<'a>(store: &'a dyn Store, writes: &'a [Write]) -> BoxFuture<'a, Vec<Outcome>> {
        store.write_many(writes)
    }
}
