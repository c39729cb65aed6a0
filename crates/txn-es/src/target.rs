//! The very index behind a name.
//!
//! Two promises of the store contract need more than a name. A write into a dropped collection must
//! not bring it back, but the servers make a missing index by themselves when it is written to. And a
//! version must never return, but an index that is dropped and made again counts from the
//! beginning. So each index has an *identity alias*, which carries the UUID of the index in its name.
//! Operations go through it and require an alias, so that they reach this very index or fail; and
//! versions carry a part of the UUID, their incarnation.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::RwLock;
use txn_store::Version;

use crate::uuid::IndexUuid;

/// What the names of identity aliases begin with.
pub(crate) const IDENTITY_ALIAS: &str = "txn-identity-";

/// One index, by its identity.
#[derive(Debug)]
pub(crate) struct Target {
    /// The index.
    pub(crate) name: Arc<str>,
    pub(crate) uuid: IndexUuid,
    /// It holds documents of an application, which may have a routing.
    pub(crate) data: bool,
    /// The identity alias, through which operations go; `None` if it is missing and cannot be added.
    pub(crate) identity_alias: Option<Arc<str>>,
    /// Set when an answer showed that the name stands for something else by now.
    stale: AtomicBool,
    /// So many documents may be in a page of a scan, by the size of those that were too large.
    most_per_page: AtomicUsize,
}

/// What the servers condition a write on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) seq_no: u64,
    pub(crate) primary_term: u64,
}

/// A condition that no document meets.
pub(crate) const IMPOSSIBLE: Condition =
    Condition { seq_no: 9_007_199_254_740_991, primary_term: 9_007_199_254_740_991 };

impl Target {
    pub(crate) fn new(name: &str, uuid: &IndexUuid, aliased: bool) -> Self {
        let identity_alias = aliased.then(|| identity_alias(uuid).into());
        Self {
            name: name.into(),
            uuid: uuid.clone(),
            data: true,
            identity_alias,
            stale: AtomicBool::new(false),
            most_per_page: AtomicUsize::new(usize::MAX),
        }
    }

    pub(crate) fn most_per_page(&self) -> usize {
        self.most_per_page.load(Ordering::Relaxed)
    }

    /// Notes that a page of more documents made an answer that was too large.
    pub(crate) fn shrink_pages(&self, size: usize) {
        self.most_per_page.fetch_min(size.max(1), Ordering::Relaxed);
    }

    /// Notes that the name has to be looked up again before it is used again.
    pub(crate) fn expire(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    /// The version of a document of this index; `None` if the figures are out of all bounds.
    pub(crate) fn version(&self, seq_no: u64, primary_term: u64) -> Option<Version> {
        let version = Version { incarnation: self.uuid.incarnation(), term: primary_term, seq_no };
        self.condition(version).map(|_| version)
    }

    /// What to condition a write on; `None` for a version that no document of this index ever had.
    pub(crate) fn condition(&self, version: Version) -> Option<Condition> {
        let Version { incarnation, term: primary_term, seq_no } = version;
        let is_long = |number| i64::try_from(number).is_ok();
        let possible = primary_term != 0 && is_long(primary_term) && is_long(seq_no);
        (incarnation == self.uuid.incarnation() && possible)
            .then_some(Condition { seq_no, primary_term })
    }
}

/// The name of the identity alias of an index.
pub(crate) fn identity_alias(uuid: &IndexUuid) -> String {
    format!("{IDENTITY_ALIAS}{}", uuid.hex())
}

/// What is known of names, of indices and of aliases.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    known: RwLock<HashMap<Arc<str>, Arc<Target>>>,
}

impl Targets {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Target>> {
        let known = self.known.read();
        known.get(name).filter(|target| !target.stale.load(Ordering::Relaxed)).cloned()
    }

    /// Keeps a target under its own name, and under the name that it was asked by.
    pub(crate) fn put(&self, asked: &str, target: Arc<Target>) {
        let mut known = self.known.write();
        if asked != &*target.name {
            known.insert(asked.into(), target.clone());
        }
        known.insert(target.name.clone(), target);
    }

    /// Forgets a name, and every alias of the same index.
    pub(crate) fn forget(&self, name: &str) {
        let mut known = self.known.write();
        if let Some(gone) = known.remove(name) {
            known.retain(|_, target| target.name != gone.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uuid::samples::uuid;

    #[test]
    fn versions_belong_to_one_incarnation() {
        let first = Target::new("a", &uuid("uu"), true);
        let again = Target::new("a", &uuid("vv"), true);
        let version = first.version(0, 1).unwrap();
        assert_eq!(first.condition(version), Some(Condition { seq_no: 0, primary_term: 1 }));
        assert_eq!(again.condition(version), None);
        assert_ne!(again.version(0, 1), Some(version));
        assert_eq!(Target::new("b", &first.uuid, false).version(0, 1), Some(version));
    }

    #[test]
    fn figures_out_of_bounds_are_no_versions() {
        let target = Target::new("a", &uuid("uu"), true);
        assert_eq!(target.version(1, 0), None);
        assert_eq!(target.version(1, 1 << 63), None);
        let good = target.version(1, 1).unwrap();
        assert_eq!(target.condition(Version { seq_no: u64::MAX, ..good }), None);
        assert_eq!(target.condition(Version { term: 0, ..good }), None);
    }

    #[test]
    fn identity_aliases_are_names_of_aliases() {
        let name = identity_alias(&uuid("uu"));
        assert!(crate::names::fault_of_new(&name).is_none(), "{name}");
        assert!(name.starts_with(IDENTITY_ALIAS));
    }

    #[test]
    fn forgetting_a_name_forgets_its_aliases() {
        let targets = Targets::default();
        targets.put("alias", Arc::new(Target::new("a", &uuid("uu"), true)));
        targets.put("b", Arc::new(Target::new("b", &uuid("vv"), true)));
        assert_eq!(targets.get("alias").unwrap().name, targets.get("a").unwrap().name);
        targets.forget("a");
        assert!(targets.get("a").is_none() && targets.get("alias").is_none());
        targets.get("b").unwrap().expire();
        assert!(targets.get("b").is_none());
    }
}
