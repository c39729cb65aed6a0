//! The conformance suite: checks that a store keeps the contract.
//!
//! The engine may trust only a store that passes. [`run`] runs all parts, one after the other. Each
//! part is also a function. A part **panics** with the rule that the [`Store`] broke and with the
//! observation. Each part creates its collections under names of its own, drops leftovers of an
//! earlier run, and drops its collections at the end. After a panic the collections stay, for
//! inspection.
//!
//! The suite needs a healthy store: on a quiet collection
//! [`Outcome::Unknown`](crate::Outcome::Unknown) or [`Read::Unavailable`](crate::Read::Unavailable)
//! breaks a rule, too. Only [`races`] tolerates them, and so also runs through a store with faults.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use std::sync::Arc;
//! use txn_store::MemoryStore;
//! use txn_store::conformance::{self, Options};
//!
//! conformance::run(Arc::new(MemoryStore::new()), Options::new("mine").with_race(4, 5)).await;
//! # }
//! ```

mod fixture;

use std::sync::Arc;
use std::time::Duration;

use crate::{Source, Store};
use fixture::Fixture;

/// Settings of a run of the suite.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The prefix of all names of collections and aliases of the suite.
    ///
    /// Lower case letters, digits and dashes. Two concurrent runs on one server need different
    /// prefixes.
    pub prefix: String,
    /// Mappings of the collection for odd values ([`values`]), in the store's format.
    ///
    /// The field `payload` has to take any JSON. Stores without mappings ignore this setting.
    pub opaque_mappings: Option<Source>,
    /// Whether versions stay unique after a collection was dropped and created again.
    ///
    /// Default true. False is only for a store without an [`incarnation`], whose servers restart
    /// the count. Elasticsearch restarts the count, too, but there the incarnation differs. The
    /// `uid` of the collection differs in any case.
    ///
    /// [`incarnation`]: crate::Version::incarnation
    pub versions_survive_drop: bool,
    /// The number of writers that race in [`races`]. Default 16.
    pub writers: u32,
    /// The number of increments of each writer. Default 25.
    pub increments: u32,
    /// The maximum duration of one part. Default two minutes.
    pub patience: Duration,
}

impl Options {
    /// Creates the defaults, with collections named `{prefix}-...`.
    #[must_use]
    pub fn new(prefix: impl Into<String>) -> Self {
        let opaque =
            r#"{"dynamic":true,"properties":{"payload":{"type":"object","enabled":false}}}"#;
        Self {
            prefix: prefix.into(),
            opaque_mappings: Some(opaque.into()),
            versions_survive_drop: true,
            writers: 16,
            increments: 25,
            patience: Duration::from_secs(120),
        }
    }

    /// Sets [`Options::opaque_mappings`].
    #[must_use]
    pub fn with_opaque_mappings(mut self, mappings: Option<Source>) -> Self {
        self.opaque_mappings = mappings;
        self
    }

    /// Sets [`Options::versions_survive_drop`].
    #[must_use]
    pub fn with_versions_survive_drop(mut self, survive: bool) -> Self {
        self.versions_survive_drop = survive;
        self
    }

    /// Sets [`Options::writers`] and [`Options::increments`].
    #[must_use]
    pub fn with_race(mut self, writers: u32, increments: u32) -> Self {
        (self.writers, self.increments) = (writers, increments);
        self
    }

    /// Sets [`Options::patience`].
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

impl From<&str> for Options {
    fn from(prefix: &str) -> Self {
        Self::new(prefix)
    }
}

/// Declares each part as a module, a public function, and a step.
///
/// One list, so that no part can be forgotten.
macro_rules! parts {
    ($($group:ident { $($(#[$doc:meta])* $part:ident;)* })*) => {
        $(mod $group { $(pub(super) mod $part;)* })*

        $($(
            $(#[$doc])*
            ///
            /// # Panics
            /// If the store breaks a rule. The message names the rule.
            pub async fn $part(store: &Arc<dyn Store>, options: &Options) {
                let mut fixture = Fixture::new(store, options, stringify!($part));
                let run = Box::pin(async {
                    $group::$part::run(&mut fixture).await;
                    fixture.clear().await;
                });
                let done = tokio::time::timeout(options.patience, run).await;
                let rule = concat!(stringify!($part), ": no call waits without bound");
                fixture::rule(rule, done.is_ok(), &options.patience);
            }
        )*)*

        /// Runs every part of the suite. The options may be just a prefix.
        ///
        /// # Panics
        /// If the store breaks a rule. The message names the rule.
        pub async fn run(store: Arc<dyn Store>, options: impl Into<Options>) {
            let options = options.into();
            $($(Box::pin($part(&store, &options)).await;)*)*
        }
    };
}

parts! {
    writes {
        /// Create, replace and delete: when they apply, and their outcome otherwise.
        conditions;
        /// The dry run: accepts and refuses without a write.
        checks;
        /// Verify: answers for the current version, and moves nothing.
        verifies;
        /// Versions that never return.
        versions;
        /// Missing and dropped collections: no write succeeds, and no collection returns.
        drops;
        /// The order of results, and of several writes to one document.
        order;
    }
    collections {
        /// Scans: complete, page by page, filtered.
        scans;
        /// Aliases, what opening a collection shows, and `require_alias`.
        aliases;
        /// The collection that a name means now.
        identities;
        /// Lists of collections, and the release of a collection.
        listings;
        /// The write block.
        blocks;
        /// The bounds that the store declares.
        limits;
    }
    contents {
        /// Ids and routings of any text.
        ids;
        /// Values that keep their bytes.
        values;
        /// Sources with raw line breaks are never executed.
        lines;
        /// Many concurrent writers: increments add up exactly, and one creator wins.
        ///
        /// Continues through conflicts, rejections and unknown outcomes.
        races;
    }
}
