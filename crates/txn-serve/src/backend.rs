//! The domain behind the gateway: its collections, and transactions with stored answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use txn_core::store::StoreErrorKind;
use txn_core::{
    Answer, Collection, Domain, Error, IdempotencyKey, Options, Raw, Transaction, TransactionFn,
};
use txn_requests::{Operations, RequestError};

use crate::access::caller::Caller;
use crate::access::rights::Verb;
use crate::config::ServeConfig;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::systems::opened::Systems;
use crate::transactions::reservation::Reservations;

/// How long the gateway remembers collections, and names without one. The collections are those of
/// the domain.
const FOREIGN: Duration = Duration::from_secs(1);

/// The maximum number of remembered names.
const MOST_FOREIGN: usize = 1_000;

/// The longest name of a new collection, in bytes.
const MOST_NAME: usize = 200;

/// The domain of a gateway.
pub(crate) struct Backend {
    pub(crate) domain: Domain,
    pub(crate) config: ServeConfig,
    pub(crate) operations: Operations,
    pub(crate) reservations: Reservations,
    pub(crate) systems: Systems,
    /// Names that are no collections, with the time of the answer.
    foreign: Mutex<BTreeMap<String, Instant>>,
    /// The physical names of the collections, with the time of the answer.
    collections: Mutex<Option<(Instant, Arc<BTreeSet<String>>)>>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("domain", &self.domain.name()).finish_non_exhaustive()
    }
}

/// The reason why a closure without a key did not commit.
enum Halt {
    Refused(Box<Reply>),
    Failed(Problem),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl Backend {
    pub(crate) fn new(domain: Domain, config: ServeConfig) -> Self {
        let operations = Operations::new(&domain, config.max_documents, config.max_body);
        let reservations = Reservations::new(&domain, &config);
        let systems = Systems::new(&domain, &config);
        let (foreign, collections) = (Mutex::default(), Mutex::default());
        Self { domain, config, operations, reservations, systems, foreign, collections }
    }

    /// Finds a collection of the domain, by its name or an alias.
    ///
    /// Opening claims a collection, so the gateway opens only those that the domain has.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Collection<Raw>>, Problem> {
        if let Some(open) = self.operations.open_collection(name) {
            return Ok(Some(open));
        }
        self.operations.check_name(name).map_err(reserved)?;
        // A pattern or a list of names is no collection.
        if name.contains(|c: char| c.is_whitespace() || "*,<>\"|?#\\/:".contains(c)) {
            return Ok(None);
        }
        if self.is_foreign(name) {
            return Ok(None);
        }
        let physical = match self.domain.store().identify(name).await {
            Ok(identity) => identity.name,
            Err(error)
                if matches!(
                    error.kind,
                    StoreErrorKind::NotFound | StoreErrorKind::Misconfigured
                ) =>
            {
                self.note_foreign(name);
                return Ok(None);
            }
            Err(error) => return Err(Error::from(error).into()),
        };
        let overview = self.domain.admin().overview().await?;
        if !overview.collections.iter().any(|collection| **collection == *physical) {
            self.note_foreign(name);
            return Ok(None);
        }
        self.operations.collection(name).await.map(Some).map_err(reserved)
    }

    /// Finds a collection, or fails.
    pub(crate) async fn existing(
        &self,
        caller: &Caller,
        verb: Verb,
        name: &str,
    ) -> Result<Collection<Raw>, Problem> {
        caller.need(verb, name)?;
        self.find(name).await?.ok_or_else(|| no_collection(name))
    }

    /// Finds a collection for a write, or creates it.
    ///
    /// A gateway that may not create collections fails for a missing one.
    pub(crate) async fn for_write(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Collection<Raw>, Problem> {
        caller.need(Verb::Write, name)?;
        match self.find(name).await? {
            Some(collection) => Ok(collection),
            None if self.config.create_collections => self.create(caller, name, None).await,
            None => Err(no_collection(name)),
        }
    }

    /// Refuses writes without the rights on all their collections.
    ///
    /// So a request that is refused has created no collection.
    pub(crate) async fn admit_writes(
        &self,
        caller: &Caller,
        names: BTreeSet<&str>,
    ) -> Result<(), Problem> {
        if matches!(caller, Caller::Anyone) {
            return Ok(());
        }
        names.iter().try_for_each(|name| caller.need(Verb::Write, name))?;
        for name in names {
            if self.config.create_collections && self.find(name).await?.is_none() {
                caller.need(Verb::Create, name)?;
            }
        }
        Ok(())
    }

    /// Creates a collection.
    pub(crate) async fn create(
        &self,
        caller: &Caller,
        name: &str,
        mappings: Option<&str>,
    ) -> Result<Collection<Raw>, Problem> {
        caller.need(Verb::Create, name)?;
        self.operations.check_name(name).map_err(reserved)?;
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !begins || name.len() > MOST_NAME || !name.chars().all(fits) {
            let detail = format!(
                "a new collection has a name of at most {MOST_NAME} lower-case letters, digits, dots, hyphens and \
                 underscores, and begins with a letter or a digit"
            );
            return Err(Problem::new(Code::Invalid, detail)
                .of_kind(hyper::StatusCode::BAD_REQUEST, "invalid_index_name_exception"));
        }
        self.domain.create_collection::<Raw>(name, mappings).await?;
        self.forget_foreign(name);
        self.operations.collection(name).await.map_err(reserved)
    }

    /// Returns the physical names of the domain's collections.
    ///
    /// The names are at most one second old.
    pub(crate) async fn collections(&self) -> Result<Arc<BTreeSet<String>>, Problem> {
        if let Some((at, collections)) = &*self.collections.lock()
            && at.elapsed() < FOREIGN
        {
            return Ok(collections.clone());
        }
        let overview = self.domain.admin().overview().await?;
        let collections: Arc<BTreeSet<String>> =
            Arc::new(overview.collections.into_iter().collect());
        *self.collections.lock() = Some((Instant::now(), collections.clone()));
        Ok(collections)
    }

    /// Forgets that a name is no collection.
    pub(crate) fn forget_foreign(&self, name: &str) {
        self.foreign.lock().remove(name);
    }

    fn is_foreign(&self, name: &str) -> bool {
        self.foreign.lock().get(name).is_some_and(|at| at.elapsed() < FOREIGN)
    }

    fn note_foreign(&self, name: &str) {
        let mut foreign = self.foreign.lock();
        if foreign.len() >= MOST_FOREIGN {
            foreign.clear();
        }
        foreign.insert(name.to_owned(), Instant::now());
    }

    /// The settings of a transaction for a request.
    pub(crate) fn options(&self) -> Options {
        Options::default().with_timeout(Some(self.config.timeout))
    }

    /// Runs a transaction. With a key, a repetition receives the stored answer.
    ///
    /// An error of the closure is not stored, so a repetition runs the closure again.
    pub(crate) async fn run<F>(
        &self,
        key: Option<&IdempotencyKey>,
        options: &Options,
        closure: F,
    ) -> Result<Reply, Problem>
    where
        F: for<'t> TransactionFn<'t, Answer<Reply>, Problem> + Sync,
    {
        let answered = match key {
            Some(key) => {
                let answered = self.domain.idempotent(key, options, closure).await;
                let reply =
                    answered.map(|answered| answered.value.of_transaction(answered.receipt));
                reply.map_err(Problem::repeatable)
            }
            None => self.run_once(options, closure).await,
        };
        if answered.as_ref().is_err_and(|problem| problem.code() == Code::Misconfigured) {
            // An alias may name another collection now.
            self.operations.forget_collections();
        }
        self.count(&answered);
        answered
    }

    /// Counts the result of a transaction. A stored answer counts again with each repetition.
    fn count(&self, answered: &Result<Reply, Problem>) {
        let Some(results) = &self.config.results else { return };
        match answered {
            Ok(reply) if reply.is_refusal() => results.refused(),
            Ok(_) => results.result(&Ok(())),
            Err(problem) => match problem.cause() {
                Some(kind) => results.failed(kind),
                None => results.refused(),
            },
        }
    }

    async fn run_once<F>(&self, options: &Options, closure: F) -> Result<Reply, Problem>
    where
        F: for<'t> TransactionFn<'t, Answer<Reply>, Problem> + Sync,
    {
        let done = self.domain.run(options, async |tx: &Transaction| {
            match closure(tx).await.map_err(Halt::Failed)? {
                Answer::Commit(reply) => Ok(reply),
                Answer::Refuse(reply) => Err(Halt::Refused(Box::new(reply))),
            }
        });
        match done.await {
            Ok(done) => Ok(done.value.of_transaction(Some(done.receipt))),
            Err(Halt::Refused(reply)) => Ok(*reply),
            Err(Halt::Failed(problem)) => Err(problem),
        }
    }
}

/// The error of a collection that no request may change.
fn reserved(error: RequestError) -> Problem {
    match error {
        RequestError::Invalid(why) => Problem::new(Code::Reserved, why),
        error => error.into(),
    }
}

pub(crate) fn no_collection(name: &str) -> Problem {
    let name: String = name.chars().take(MOST_NAME).collect();
    let detail = format!(
        "the domain has no collection {name:?}: create it by `txn init`, or by a put or an insert at a \
         gateway with --create-collections"
    );
    Problem::new(Code::NoCollection, detail)
}
