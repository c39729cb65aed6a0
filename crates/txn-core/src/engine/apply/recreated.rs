//! Participants whose collection was dropped, and perhaps made again.
//!
//! A commit that is not applied is lost with its collection. A collection that is made again under
//! the same name is another collection. The documents of the new collection prove nothing about the
//! commit, and the apply never writes them. A version names the collection of its document. For an
//! absent document the engine asks the store. A lagging node may answer, so the loss is reported
//! after a lease and final after ten minutes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::apply::Applier;
use crate::engine::apply::progress::Apply;
use crate::engine::holders::failure_detector::NO_NODE_LAGS_FOR;
use crate::engine::store::store_access::{Look, missing_collection};
use crate::engine::wait_reason::WaitReason;
use crate::event::DamageCause;
use txn_protocol::document::View;
use txn_protocol::record::{Op, Participant};
use txn_store::{CollectionSpec, Key, Role, StoreErrorKind};

/// The report for a collection that is gone.
const GONE: &str = "its collection is gone, and the unapplied commit is lost with it";

/// The report for a collection that was made again.
const MADE_AGAIN: &str = "its collection was dropped and made again under the same name: the commit to it is lost, and \
                          its record has the new content";

/// The current collection of a name.
#[derive(Clone, Debug)]
enum Named {
    Incarnation(u64),
    Missing,
    /// The store cannot answer now, for this reason.
    Later(String),
}

impl Applier {
    /// Checks whether each read shows another collection than the participant's.
    ///
    /// `true` means that the participant was locked in another collection. For absent documents the
    /// store identifies each collection once. If the store cannot answer, that result replaces the
    /// read.
    pub(in crate::engine) async fn identify_collections(
        &self,
        participants: &[&Participant],
        looks: Vec<Look>,
    ) -> Vec<(Look, bool)> {
        let mut named: BTreeMap<Arc<str>, Named> = BTreeMap::new();
        let mut identified = Vec::new();
        for (participant, look) in participants.iter().zip(looks) {
            let incarnation = match &look {
                Look::Seen(View::Present { version, .. }) => Some(version.incarnation),
                Look::Seen(View::Absent) if needs_identity(participant) => {
                    let name = &participant.collection;
                    if !named.contains_key(name) {
                        named.insert(name.clone(), self.named(name).await);
                    }
                    match named.get(name) {
                        Some(Named::Incarnation(incarnation)) => Some(*incarnation),
                        Some(Named::Missing) => {
                            identified.push((Look::Missing, false));
                            continue;
                        }
                        Some(Named::Later(why)) => {
                            identified.push((Look::Later(why.clone()), false));
                            continue;
                        }
                        None => None,
                    }
                }
                // This store does not distinguish collections of one name.
                Look::Seen(View::Absent) if participant.incarnation() == 0 => Some(0),
                Look::Seen(View::Absent) | Look::Missing | Look::Later(_) | Look::Broken(_) => None,
            };
            let is_elsewhere = incarnation.is_some_and(|found| participant.is_elsewhere(found));
            if incarnation.is_some() && !is_elsewhere {
                self.detector.note_present(&participant.collection, participant.incarnation());
            }
            identified.push((look, is_elsewhere));
        }
        identified
    }

    async fn named(&self, collection: &str) -> Named {
        match self.store.documents().identify(collection).await {
            Ok(identity) => Named::Incarnation(identity.incarnation),
            Err(error) if error.kind == StoreErrorKind::NotFound => Named::Missing,
            Err(error) => Named::Later(error.message),
        }
    }

    /// Reports a participant whose collection is missing or was made again (`made_again`).
    pub(in crate::engine) async fn report_lost(
        &self,
        apply: &mut Apply,
        key: &Key,
        incarnation: u64,
        made_again: bool,
        gone: &mut BTreeMap<Arc<str>, bool>,
    ) {
        let missing = self.detector.note_missing(&key.collection, incarnation, self.context.now());
        let long = missing >= NO_NODE_LAGS_FOR;
        let is_gone = match gone.get(&key.collection) {
            _ if made_again => long,
            Some(is_gone) => *is_gone,
            None => {
                let is_gone = long && self.is_gone(&key.collection).await;
                gone.insert(key.collection.clone(), is_gone);
                is_gone
            }
        };
        if is_gone {
            apply.lose(key);
            self.emit_lost(apply.tid(), key, if made_again { MADE_AGAIN } else { GONE });
        } else if missing < self.context.config.lease {
            // A lagging node may have answered.
            let why = match made_again {
                true => format!("the collection {:?} was made again", key.collection),
                false => format!("no node knows the collection {:?} yet", key.collection),
            };
            apply.block(key, WaitReason::Store(why));
        } else if made_again {
            cov_mark::hit!(commit_to_a_collection_made_again);
            apply.never(key, DamageCause::CollectionLost, MADE_AGAIN);
        } else {
            apply.give_up(key, missing_collection(key));
        }
    }

    /// Whether a collection that stayed missing for ten minutes is gone.
    ///
    /// A lagging node reports a new collection as missing. This collection is older than the
    /// commit, and no node of a cluster lags for ten minutes.
    async fn is_gone(&self, collection: &str) -> bool {
        let spec = CollectionSpec {
            name: collection.to_owned(),
            role: Role::Data { owner: None },
            create: false,
            mappings: None,
        };
        let opened = self.store.documents().open_collection(&spec).await;
        opened.is_err_and(|error| error.kind == StoreErrorKind::NotFound)
    }
}

/// Whether an absent document counts only in the participant's own collection.
fn needs_identity(participant: &Participant) -> bool {
    participant.op != Op::Read && participant.incarnation() != 0
}
