//! The very index behind a name.
//!
//! Two promises of the store contract need more than a name. A write into a dropped collection must
//! not bring it back, but the servers make a missing index by themselves when it is written to. And a
//! version must never return, but an index that is dropped and made again counts from the
//! beginning. So each index has an *identity alias*, whose name is that of the index with its UUID. It begins with the name of
//! the index, so that privileges are granted on both by one pattern: a privilege on an alias is one on its index.
//! Operations go through it and require an alias, so that they reach this very index or fail; and
//! versions carry a part of the UUID, their incarnation.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use txn_store::{StoreError, Version};

use crate::definition::misconfigured;
use crate::uuid::IndexUuid;

/// In the name of an identity alias, between the name of the index and its UUID.
const IDENTITY: &str = "-txn-";

/// A UUID in hexadecimal digits.
const UUID_DIGITS: usize = 32;

/// What the names of identity aliases began with before they began with the name of their index, and the digits that followed.
const FORMER_IDENTITY: (&str, usize) = ("txn-identity-", 44);

/// The longest name of an index that leaves room for that of its identity alias.
pub(crate) const MAX_NAME_BYTES: usize = crate::names::MAX_BYTES - IDENTITY.len() - UUID_DIGITS;

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
    shared: Mutex<SharedAliases>,
    /// So many documents may be in a page of a scan, by the size of those that were too large.
    most_per_page: AtomicUsize,
}

/// Aliases of an index that stand for copies of it as well.
#[derive(Debug, Default)]
struct SharedAliases {
    names: BTreeSet<Arc<str>>,
    /// When somebody last tried to take them off the copies.
    tried: Option<Instant>,
}

/// So long a failed try to take aliases off copies is not repeated.
const REPAIR_PAUSE: Duration = Duration::from_secs(5);

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
        let identity_alias = aliased.then(|| identity_alias(name, uuid).into());
        Self {
            name: name.into(),
            uuid: uuid.clone(),
            data: true,
            identity_alias,
            stale: AtomicBool::new(false),
            shared: Mutex::default(),
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

    /// Notes that an alias, through which operations go, stands for a copy of this index as well.
    pub(crate) fn note_shared(&self, alias: &Arc<str>) {
        self.shared.lock().names.insert(alias.clone());
    }

    /// Whether an alias of it stands for a copy as well.
    pub(crate) fn is_shared(&self) -> bool {
        !self.shared.lock().names.is_empty()
    }

    /// The aliases that have to be taken off copies: one try for each pause.
    pub(crate) fn take_shared(&self) -> BTreeSet<Arc<str>> {
        let mut shared = self.shared.lock();
        let is_due = shared.tried.is_none_or(|tried| tried.elapsed() >= REPAIR_PAUSE);
        if shared.names.is_empty() || !is_due {
            return BTreeSet::new();
        }
        shared.tried = Some(Instant::now());
        std::mem::take(&mut shared.names)
    }

    /// Notes that the aliases are off the copies.
    pub(crate) fn is_alone_again(&self) {
        self.shared.lock().tried = None;
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
pub(crate) fn identity_alias(index: &str, uuid: &IndexUuid) -> String {
    format!("{index}{IDENTITY}{}", uuid.hex())
}

/// Whether the name of an index leaves room for that of its identity alias.
pub(crate) fn check_length(index: &str) -> Result<(), StoreError> {
    let len = index.len();
    if len <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(misconfigured(format!(
        "the name of the index {index} has {len} bytes, and the limit is {MAX_NAME_BYTES}: the alias that identifies it \
         needs {} bytes more, and the servers take {}; give the index a shorter name",
        IDENTITY.len() + UUID_DIGITS,
        crate::names::MAX_BYTES,
    )))
}

/// The names of the identity aliases of an index and of every index that is made again under its name.
pub(crate) fn identity_aliases(index: &str) -> String {
    format!("{index}{IDENTITY}*")
}

/// Whether the name of an alias is that of an identity alias, of any index.
pub(crate) fn is_identity_alias(alias: &str) -> bool {
    let is_hex = |digits: &str, count| {
        digits.len() == count && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let (former, digits) = FORMER_IDENTITY;
    alias.rsplit_once(IDENTITY).is_some_and(|(_, uuid)| is_hex(uuid, UUID_DIGITS))
        || alias.strip_prefix(former).is_some_and(|uuid| is_hex(uuid, digits))
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
        let longest = "a".repeat(MAX_NAME_BYTES);
        let name = identity_alias(&longest, &uuid("uu"));
        assert!(crate::names::fault_of_new(&name).is_none(), "{name}");
        let former = format!("txn-identity-{}", "75".repeat(22));
        for alias in [&*name, &identity_alias("a-txn-b", &uuid("vv")), &former] {
            assert!(is_identity_alias(alias), "{alias}");
        }
        // The partitions of a domain, and names of an application.
        for other in
            ["txn-identity-2026.05.31", "a-txn-2026", "a-committed", "txn-identity-75", "a"]
        {
            assert!(!is_identity_alias(other), "{other}");
        }
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
