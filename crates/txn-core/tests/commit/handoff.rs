//! Hand-offs on a store that refuses the content in the next lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use txn_core::store::{Outcome, Refusal, RefusalKind};
use txn_sim::Fate;

use crate::support::script::{is_lock, writes};
use crate::support::{Shop, config};

#[tokio::test(start_paused = true)]
async fn refused_handoff_leaves_the_apply_to_the_owner() {
    cov_mark::check!(handoff_given_up);
    let shop = Shop::open_with(&["a", "b"], config().with_group_commit(Some(true))).await;
    let (applied, refused) = (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
    let count = refused.clone();
    shop.store.play(move |write| {
        if write.require_alias || !writes(write, "\"n\":9}") {
            return Fate::Pass;
        }
        if !is_lock(write) {
            applied.store(true, Ordering::SeqCst);
        } else if !applied.load(Ordering::SeqCst) {
            count.fetch_add(1, Ordering::SeqCst);
            let reason = "refused together with a lock".to_owned();
            let refusal = Refusal { kind: RefusalKind::Document, reason };
            return Fate::RefuseWith(Outcome::Invalid(refusal));
        }
        Fate::Pass
    });
    for n in 2..20 {
        shop.set(&shop.domain, &["a", "b"], n).await.expect("commits");
    }
    shop.drained().await;
    assert!(refused.load(Ordering::SeqCst) > 0, "no lock carried that commit");
    assert_eq!((shop.value("a").await, shop.value("b").await), (Some(19), Some(19)));
}
