//! A store with scripted answers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use txn_core::store::{
    Key, Layer, Outcome, Read, Store, StoreError, StoreErrorKind, Write, WriteOp,
};

/// The error of a closed index.
const CLOSED: &str = "index_closed_exception";

/// The effect and the answer of one write.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// Carries the write out.
    Pass,
    /// Carries the write out, and returns this answer instead.
    AnswerWith(Outcome),
    /// Returns this answer without carrying the write out.
    RefuseWith(Outcome),
    /// Carries the write out, and never answers.
    Hang,
    /// Carries the write out, and panics.
    Panic,
}

/// The moment from which the writes of a process no longer arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dies {
    Never,
    BeforeCommit,
    AfterCommit,
    /// The store refuses writes of documents after the commit.
    ///
    /// The process lives on, and its writes arrive again once `held_back` is cleared.
    HeldBackAfterCommit,
}

/// The collections that are closed, for all processes.
pub(crate) type Closed = Arc<Mutex<BTreeSet<String>>>;

type Script = Box<dyn Fn(&Write) -> Fate + Send + Sync>;

/// Forwards calls to another store, with the answers of a script.
pub(crate) struct Scripted {
    inner: Arc<dyn Store>,
    script: Mutex<Arc<Script>>,
    refresh: Mutex<Fate>,
    down: AtomicBool,
    closed: Closed,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

impl Scripted {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self::with_closed(inner, Closed::default())
    }

    pub(crate) fn with_closed(inner: Arc<dyn Store>, closed: Closed) -> Self {
        let pass: Script = Box::new(|_| Fate::Pass);
        Self {
            inner,
            script: Mutex::new(Arc::new(pass)),
            refresh: Mutex::new(Fate::Pass),
            down: AtomicBool::new(false),
            closed,
        }
    }

    /// Replaces the script for writes.
    pub(crate) fn play(&self, script: impl Fn(&Write) -> Fate + Send + Sync + 'static) {
        *self.script.lock() = Arc::new(Box::new(script));
    }

    /// Plays the death of a process. Returns the switch for held-back writes.
    pub(crate) fn die(&self, dies: Dies) -> Arc<AtomicBool> {
        let (dead, held_back) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
        let held = held_back.clone();
        self.play(move |write| {
            let commits = is_commit(write);
            if dies == Dies::BeforeCommit && commits {
                dead.store(true, Ordering::SeqCst);
            }
            if dead.load(Ordering::SeqCst) && write.op.changes() {
                return Fate::RefuseWith(Outcome::Rejected("the process is dead".to_owned()));
            }
            if held.load(Ordering::SeqCst) && !write.require_alias {
                return Fate::RefuseWith(Outcome::RejectedInDoubt(CLOSED.to_owned()));
            }
            match dies {
                Dies::AfterCommit if commits => dead.store(true, Ordering::SeqCst),
                Dies::HeldBackAfterCommit if commits => held.store(true, Ordering::SeqCst),
                _ => {}
            }
            Fate::Pass
        });
        held_back
    }

    /// Sets the fate of refreshes.
    pub(crate) fn set_refresh(&self, fate: Fate) {
        *self.refresh.lock() = fate;
    }

    /// Makes the store unavailable, or available again.
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    async fn read(&self, keys: &[Key], read: impl Future<Output = Vec<Read>> + Send) -> Vec<Read> {
        if let Err(error) = self.up() {
            return keys.iter().map(|_| Read::Unavailable(error.clone())).collect();
        }
        let mut reads = read.await;
        for (key, read) in keys.iter().zip(&mut reads) {
            if self.is_closed(&key.collection) {
                *read = Read::Unavailable(StoreError::new(StoreErrorKind::Unavailable, CLOSED));
            }
        }
        reads
    }

    fn is_closed(&self, collection: &str) -> bool {
        self.closed.lock().contains(collection)
    }

    fn up(&self) -> Result<(), StoreError> {
        match self.down.load(Ordering::SeqCst) {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "down")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Layer for Scripted {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<V: Send>(
        &self,
        call: impl Future<Output = Result<V, StoreError>> + Send,
    ) -> Result<V, StoreError> {
        self.up()?;
        call.await
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, self.inner.get_many(keys)).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.read(keys, self.inner.read_primary(keys)).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(writes.len());
        for write in writes {
            if self.up().is_err() {
                outcomes.push(Outcome::Rejected("down".to_owned()));
                continue;
            }
            let script = self.script.lock().clone();
            let fate = script(write);
            if let Fate::RefuseWith(outcome) = fate {
                outcomes.push(outcome);
                continue;
            }
            if self.is_closed(&write.key.collection) {
                outcomes.push(Outcome::RejectedInDoubt(CLOSED.to_owned()));
                continue;
            }
            let mut carried_out = self.inner.write_many(std::slice::from_ref(write)).await;
            outcomes.push(match fate {
                Fate::AnswerWith(outcome) => outcome,
                Fate::Hang => std::future::pending().await,
                Fate::Panic => panic!("the store panics"),
                Fate::Pass | Fate::RefuseWith(_) => carried_out.swap_remove(0),
            });
        }
        outcomes
    }

    async fn refresh(&self, collection: &str) -> Result<(), StoreError> {
        self.up()?;
        let fate = self.refresh.lock().clone();
        match fate {
            Fate::Panic => panic!("the store panics"),
            Fate::Hang => std::future::pending().await,
            _ => self.inner.refresh(collection).await,
        }
    }
}

/// Carries out but refuses the first matching write, and goes down.
pub(crate) fn refuse_and_go_down(
    store: &Arc<Scripted>,
    refusal: Outcome,
    which: impl Fn(&Write) -> bool + Send + Sync + 'static,
) {
    let (weak, met) = (Arc::downgrade(store), AtomicUsize::new(0));
    store.play(move |write| {
        if !which(write) || met.fetch_add(1, Ordering::SeqCst) > 0 {
            return Fate::Pass;
        }
        if let Some(store) = weak.upgrade() {
            store.set_down(true);
        }
        Fate::AnswerWith(refusal.clone())
    });
}

/// Whether a write commits a record.
pub(crate) fn is_commit(write: &Write) -> bool {
    write.require_alias && writes(write, "\"state\":\"committed\"")
}

/// Whether a write takes a lock.
pub(crate) fn is_lock(write: &Write) -> bool {
    !write.require_alias && writes(write, "\"transaction_tid\"")
}

/// Whether a write contains this text.
pub(crate) fn writes(write: &Write, text: &str) -> bool {
    matches!(&write.op, WriteOp::Create(source) | WriteOp::Replace(source, _) if source.contains(text))
}
