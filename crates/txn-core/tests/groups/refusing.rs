//! A store that refuses a hand-off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use txn_core::store::{Key, Outcome, Read, Store, Write, fields};
use txn_sim::{Breakpoint, Call, Fate, Scripted, Step};

use crate::support::script::is_lock;

/// Refuses the next hand-off of a document, once the breakpoint is set.
///
/// The refusal waits at the breakpoint, so that another process can write in between.
pub(super) fn refuse_handoff(
    inner: &Arc<dyn Store>,
    id: &'static str,
    with: Outcome,
) -> (Arc<Scripted>, Arc<Breakpoint>) {
    let (store, point) = (Scripted::new(inner.clone()), Arc::new(Breakpoint::default()));
    let locks = move |write: &Write| is_lock(write) && *write.key.id == *id;
    let refuses = Arc::new(AtomicBool::new(false));
    let (inner, stops, refused) = (inner.clone(), point.clone(), refuses.clone());
    store.before(move |call| {
        let Call::WriteMany(writes) = call else { return Step::pass() };
        let Some(lock) = writes.iter().find(|write| locks(write)) else { return Step::pass() };
        let (key, inner) = (lock.key.clone(), inner.clone());
        let (stops, refused) = (stops.clone(), refused.clone());
        Step::wait(async move {
            if is_locked(&*inner, &key).await && stops.pass().await {
                refused.store(true, Ordering::Relaxed);
            }
        })
    });
    store.play(move |write| match locks(write) && refuses.swap(false, Ordering::Relaxed) {
        true => Fate::RefuseWith(with.clone()),
        false => Fate::Pass,
    });
    (Arc::new(store), point)
}

/// Whether the document has a lock.
async fn is_locked(store: &dyn Store, key: &Key) -> bool {
    let lock = format!("\"{}\":", fields::TRANSACTION_TID);
    let reads = store.read_primary(std::slice::from_ref(key)).await;
    reads.iter().all(|read| matches!(read, Read::Found { source, .. } if source.contains(&lock)))
}
