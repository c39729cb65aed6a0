//! The exact index behind a name.
//!
//! Two guarantees of the store contract need more than a name:
//! - A write to a dropped collection must not recreate the collection. But the servers create a
//!   missing index on a write.
//! - A version must never return. But an index that is dropped and created again counts from the
//!   start.
//!
//! So each index has an *identity alias*, whose name is the name of the index and its UUID. The
//! name of the index comes first, so that one pattern grants privileges on both. A privilege on an
//! alias is a privilege on its index. Operations require the alias, and so reach exactly this index
//! or fail. Versions carry a part of the UUID, their incarnation.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use txn_store::{StoreError, StoreErrorKind, Version};

use crate::identity::uuid::IndexUuid;
use crate::index::definition::misconfigured;

/// The infix of an identity alias: index name, infix, UUID.
const IDENTITY: &str = "-txn-";

/// The length of a UUID in hexadecimal digits.
const UUID_DIGITS: usize = 32;

/// The former prefix of identity aliases. The number is that of the digits after the prefix.
const FORMER_IDENTITY: (&str, usize) = ("txn-identity-", 44);

/// The longest index name with space for the alias, in bytes. The alias is the identity alias.
pub(crate) const MAX_NAME_BYTES: usize =
    crate::index::names::MAX_BYTES - IDENTITY.len() - UUID_DIGITS;

/// One index, by its identity.
#[derive(Debug)]
pub(crate) struct Target {
    /// The name of the index.
    pub(crate) name: Arc<str>,
    pub(crate) uuid: IndexUuid,
    /// Whether an application's documents are in the index. Such documents may have a routing.
    pub(crate) data: bool,
    /// The identity alias for operations. `None` if the alias is missing and cannot be added.
    pub(crate) identity_alias: Option<Arc<str>>,
    /// Set after an answer showed that the name now means another index.
    stale: AtomicBool,
    shared: Mutex<SharedAliases>,
    /// The maximum page size of a scan, in documents.
    ///
    /// Learned from answers that were too large.
    most_per_page: AtomicUsize,
}

/// Aliases of an index that also name a copy.
#[derive(Debug, Default)]
struct SharedAliases {
    names: BTreeSet<Arc<str>>,
    /// The last try to remove the aliases from the copies.
    tried: Option<Instant>,
}

/// The pause after a failed try to remove aliases from copies.
const REPAIR_PAUSE: Duration = Duration::from_secs(5);

/// The servers' condition of a write.
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

    /// Returns the error of an operation that needs the missing identity alias.
    pub(crate) fn missing_alias(&self) -> StoreError {
        let (name, aliases) = (&self.name, identity_aliases(&self.name));
        let text = format!(
            "writing to {name} needs the alias {}, which is missing and may not be added: grant the index \
             privileges write and manage on {name} and {aliases}, or let an administrator open the collection once",
            identity_alias(name, &self.uuid),
        );
        StoreError::new(StoreErrorKind::Denied, text)
    }

    pub(crate) fn most_per_page(&self) -> usize {
        self.most_per_page.load(Ordering::Relaxed)
    }

    /// Notes that a page of this many documents was too large.
    pub(crate) fn shrink_pages(&self, size: usize) {
        self.most_per_page.fetch_min(size.max(1), Ordering::Relaxed);
    }

    /// Notes that the next use has to resolve the name again.
    pub(crate) fn expire(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    /// Notes that an alias for operations names a copy, too.
    ///
    /// The copy is one of this index.
    pub(crate) fn note_shared(&self, alias: &Arc<str>) {
        self.shared.lock().names.insert(alias.clone());
    }

    /// Whether an alias also names a copy.
    pub(crate) fn is_shared(&self) -> bool {
        !self.shared.lock().names.is_empty()
    }

    /// Returns the aliases to remove from copies, at most once per pause.
    pub(crate) fn take_shared(&self) -> BTreeSet<Arc<str>> {
        let mut shared = self.shared.lock();
        let is_due = shared.tried.is_none_or(|tried| tried.elapsed() >= REPAIR_PAUSE);
        if shared.names.is_empty() || !is_due {
            return BTreeSet::new();
        }
        shared.tried = Some(Instant::now());
        std::mem::take(&mut shared.names)
    }

    /// Notes that the copies no longer carry the aliases.
    pub(crate) fn is_alone_again(&self) {
        self.shared.lock().tried = None;
    }

    /// Returns the version of a document of this index.
    ///
    /// `None` if a number is out of bounds.
    pub(crate) fn version(&self, seq_no: u64, primary_term: u64) -> Option<Version> {
        let version = Version { incarnation: self.uuid.incarnation(), term: primary_term, seq_no };
        self.condition(version).map(|_| version)
    }

    /// Returns the condition of a write.
    ///
    /// `None` for a version of another index.
    pub(crate) fn condition(&self, version: Version) -> Option<Condition> {
        let Version { incarnation, term: primary_term, seq_no } = version;
        let is_long = |number| i64::try_from(number).is_ok();
        let possible = primary_term != 0 && is_long(primary_term) && is_long(seq_no);
        (incarnation == self.uuid.incarnation() && possible)
            .then_some(Condition { seq_no, primary_term })
    }
}

/// Returns the name of the identity alias of an index.
pub(crate) fn identity_alias(index: &str, uuid: &IndexUuid) -> String {
    format!("{index}{IDENTITY}{}", uuid.hex())
}

/// Checks that an index name leaves space for its identity alias.
pub(crate) fn check_length(index: &str) -> Result<(), StoreError> {
    let len = index.len();
    if len <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(misconfigured(format!(
        "the name of the index {index} has {len} bytes, and the limit is {MAX_NAME_BYTES}: the alias that identifies it \
         needs {} bytes more, and the servers take {}; give the index a shorter name",
        IDENTITY.len() + UUID_DIGITS,
        crate::index::names::MAX_BYTES,
    )))
}

/// Returns the pattern of the identity aliases under a name.
///
/// All indices of this name have such an alias.
pub(crate) fn identity_aliases(index: &str) -> String {
    format!("{index}{IDENTITY}*")
}

/// Whether a name is that of an identity alias, of any index.
pub(crate) fn is_identity_alias(alias: &str) -> bool {
    let is_hex = |digits: &str, count| {
        digits.len() == count && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let (former, digits) = FORMER_IDENTITY;
    alias.rsplit_once(IDENTITY).is_some_and(|(_, uuid)| is_hex(uuid, UUID_DIGITS))
        || alias.strip_prefix(former).is_some_and(|uuid| is_hex(uuid, digits))
}

/// The cache of targets, by the names of indices and aliases.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    known: RwLock<HashMap<Arc<str>, Arc<Target>>>,
}

impl Targets {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Target>> {
        let known = self.known.read();
        known.get(name).filter(|target| !target.stale.load(Ordering::Relaxed)).cloned()
    }

    /// Stores a target under its own name, and under the requested name.
    pub(crate) fn put(&self, asked: &str, target: Arc<Target>) {
        let mut known = self.known.write();
        if asked != &*target.name {
            known.insert(asked.into(), target.clone());
        }
        known.insert(target.name.clone(), target);
    }

    /// Removes a name, and every alias of the same index.
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
    use crate::identity::uuid::samples::uuid;

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
    fn numbers_out_of_bounds_are_no_versions() {
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
        assert!(crate::index::names::fault_of_new(&name).is_none(), "{name}");
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
    fn forget_of_a_name_removes_its_aliases() {
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
