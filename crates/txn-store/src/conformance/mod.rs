//! The conformance suite: what every [`Store`] has to pass before the engine may trust it.
//!
//! [`run`] runs all parts, one after the other; each part is a function of its own, too.
//! A part **panics** with the rule that the store broke and with what was seen instead. It makes
//! its collections under names of its own, drops what an earlier run left there, and drops them
//! at its end; after a panic they stay, to be looked at.
//!
//! The suite wants a healthy store: [`Outcome::Unknown`](crate::Outcome::Unknown) or
//! [`Read::Unavailable`](crate::Read::Unavailable) on a quiet collection is a broken rule,
//! too. Only [`races`] lives with them, and so also runs through a store with faults.
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

/// How the suite treats a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What the name of every collection and alias of the suite begins with: lower case letters,
    /// digits and dashes. Two runs at a time on one server need different ones.
    pub prefix: String,
    /// Mappings of the collection for odd values ([`values`]), in the words of the store: the field
    /// `payload` has to take any JSON. Stores without mappings ignore it.
    pub opaque_mappings: Option<Source>,
    /// Whether versions do not return in a collection that was dropped and made again, either.
    /// Default true; only for a store whose servers cannot do it (Elasticsearch starts an index
    /// again at the first seq_no) may this be false. The `uid` of the collection differs always.
    pub versions_survive_drop: bool,
    /// How many writers race in [`races`]. Default 16.
    pub writers: u32,
    /// How many increments each of them makes. Default 25.
    pub increments: u32,
    /// The longest time that one part may take. Default two minutes.
    pub patience: Duration,
}

impl Options {
    /// The defaults, with collections named `{prefix}-...`.
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

    /// The mappings of the collection for odd values.
    #[must_use]
    pub fn with_opaque_mappings(mut self, mappings: Option<Source>) -> Self {
        self.opaque_mappings = mappings;
        self
    }

    /// Whether versions do not return in a collection that was dropped and made again.
    #[must_use]
    pub fn with_versions_survive_drop(mut self, survive: bool) -> Self {
        self.versions_survive_drop = survive;
        self
    }

    /// How many writers race, and how many increments each of them makes.
    #[must_use]
    pub fn with_race(mut self, writers: u32, increments: u32) -> Self {
        (self.writers, self.increments) = (writers, increments);
        self
    }

    /// The longest time that one part may take.
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

/// Declares each part as a module with `run`, as a public function, and as a step of the suite, so
/// that no part can be forgotten.
macro_rules! parts {
    ($($(#[$doc:meta])* $part:ident;)*) => {
        $(
            mod $part;

            $(#[$doc])*
            ///
            /// # Panics
            /// When the store breaks a rule; the message names it.
            pub async fn $part(store: &Arc<dyn Store>, options: &Options) {
                let mut fixture = Fixture::new(store, options, stringify!($part));
                let run = Box::pin(async {
                    $part::run(&mut fixture).await;
                    fixture.clear().await;
                });
                let done = tokio::time::timeout(options.patience, run).await;
                let rule = concat!(stringify!($part), ": no call waits without bound");
                fixture::rule(rule, done.is_ok(), &options.patience);
            }
        )*

        /// Runs every part of the suite. The options may be just a prefix.
        ///
        /// # Panics
        /// When the store breaks a rule; the message names it.
        pub async fn run(store: Arc<dyn Store>, options: impl Into<Options>) {
            let options = options.into();
            $(Box::pin($part(&store, &options)).await;)*
        }
    };
}

parts! {
    /// Create, replace and delete: when they apply, and the outcome of each miss.
    conditions;
    /// The dry run: accepts and refuses without writing.
    checks;
    /// Verify: answers for the version of now, and moves nothing.
    verifies;
    /// Versions that never return.
    versions;
    /// Missing and dropped collections: nothing is written, nothing comes back.
    drops;
    /// The order of results, and of several writes to one document.
    order;
    /// Scans: complete, page by page, filtered.
    scans;
    /// Aliases, what opening a collection shows, and `require_alias`.
    aliases;
    /// Which collection a name stands for now.
    identities;
    /// Lists of collections, and what is taken off a collection that is released.
    listings;
    /// The write block.
    blocks;
    /// The bounds that the store declares.
    limits;
    /// Ids and routings of any text.
    ids;
    /// Values that keep their bytes.
    values;
    /// Sources with raw line breaks are never executed.
    lines;
    /// Many writers at once: increments add up exactly, and one creator wins. Goes on through
    /// conflicts, rejections and unknown outcomes.
    races;
}
