//! The engine: state and services that all attempts of a domain share.
//!
//! Each part is a type with one task. A part holds the parts below it, and calls no part above it.
//! [`Engine`] only puts the parts together.

pub(crate) mod admin;
pub(crate) mod apply;
pub(crate) mod attempt_error;
mod base;
pub(crate) mod context;
pub(crate) mod deadline;
pub(crate) mod history;
pub(crate) mod holders;
pub(crate) mod hot;
pub(crate) mod lifecycle;
pub(crate) mod live_attempts;
pub(crate) mod read_entry;
pub(crate) mod reads;
pub(crate) mod recovery;
pub(crate) mod serving_runtime;
pub(crate) mod signals;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod wait_reason;

use std::ops::Deref;
use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::engine::admin::DomainAdmin;
use crate::engine::admin::aliases::Aliases;
use crate::engine::admin::barrier::Barrier;
use crate::engine::admin::collections::Collections;
use crate::engine::admin::janitor::Janitor;
use crate::engine::admin::janitor_election::JanitorElection;
use crate::engine::apply::Applier;
use crate::engine::apply::recent_commits::RecentCommits;
use crate::engine::apply::single_write::SingleWrites;
use crate::engine::attempt_error::AttemptError;
use crate::engine::base::Base;
use crate::engine::context::Context;
use crate::engine::history::Histories;
use crate::engine::holders::failure_detector::FailureDetector;
use crate::engine::holders::unlock::Unlocker;
use crate::engine::holders::verdict::Verdicts;
use crate::engine::hot::Hot;
use crate::engine::hot::turns::Turns;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::live_attempts::LiveAttempts;
use crate::engine::reads::Reads;
use crate::engine::recovery::Recovery;
use crate::engine::serving_runtime::ServingRuntime;
use crate::engine::signals::contention::ContentionLog;
use crate::engine::signals::processes::Processes;
use crate::engine::store::request_batching::{RequestBatching, Traffic};
use crate::engine::store::store_access::StoreAccess;
use crate::engine::table::Table;
use crate::engine::time::Time;
use crate::error::Error;
use txn_store::Store;

/// The parts of the engine, from the lowest to the highest.
pub(crate) struct Engine {
    pub(crate) context: Arc<Context>,
    /// The shared requests so far.
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) store: Arc<StoreAccess>,
    pub(crate) time: Arc<Time>,
    pub(crate) table: Arc<Table>,
    pub(crate) live_attempts: Arc<LiveAttempts>,
    pub(crate) contention: Arc<ContentionLog>,
    pub(crate) processes: Arc<Processes>,
    pub(crate) hot: Arc<Hot>,
    pub(crate) recent: Arc<RecentCommits>,
    pub(crate) singles: SingleWrites,
    pub(crate) histories: Arc<Histories>,
    pub(crate) verdicts: Arc<Verdicts>,
    pub(crate) unlocker: Arc<Unlocker>,
    pub(crate) applier: Arc<Applier>,
    pub(crate) recovery: Arc<Recovery>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) aliases: Arc<Aliases>,
    pub(crate) collections: Arc<Collections>,
    pub(crate) barrier: Barrier,
    pub(crate) admin: Arc<DomainAdmin>,
    pub(crate) janitor: Arc<Janitor>,
    election: Arc<JanitorElection>,
}

/// The engine, shared between the handles, attempts and groups of a domain.
///
/// As a trait object, because otherwise the compiler would prove again in every asynchronous
/// function of an application that all parts of the engine are `Send` and `Sync`.
#[derive(Clone, Debug)]
pub(crate) struct SharedEngine(Arc<dyn AsEngine>);

trait AsEngine: std::fmt::Debug + Send + Sync {
    fn engine(&self) -> &Engine;
}

impl AsEngine for Engine {
    fn engine(&self) -> &Engine {
        self
    }
}

impl Deref for SharedEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.0.engine()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("domain", &self.table.domain()).finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn build(
        store: Arc<dyn Store>,
        name: &str,
        config: Config,
    ) -> Result<SharedEngine, Error> {
        config.check()?;
        check_name(name)?;
        let traffic = Arc::new(Traffic::default());
        let base = base_of(store, name, config, &traffic);
        let hot = Arc::new(Hot::new(&base.context.config, &base.store.limits()));
        let live_attempts = Arc::new(LiveAttempts::default());
        let contention = Arc::new(ContentionLog::new(&base, live_attempts.clone()));
        let processes = Arc::new(Processes::new(&base, contention.clone()));
        let recent = Arc::new(RecentCommits::new(&base));
        let singles = SingleWrites::new(&base, hot.clone(), recent.clone());
        let histories = Arc::new(Histories::new(&base));
        let HolderParts { detector, verdicts, unlocker, applier, recovery } =
            HolderParts::new(&base, &hot, &recent, &live_attempts, &contention);
        let reads = Reads::new(&base, unlocker.clone(), recovery.clone(), histories.clone());
        let reads = Arc::new(reads);
        let turns = Arc::new(Turns::new(&base, hot.clone(), reads.clone()));
        let aliases = Arc::new(Aliases::new(&base));
        let collections = Collections::new(&base, hot.clone(), aliases.clone(), histories.clone());
        let collections = Arc::new(collections);
        let barrier = Barrier::new(&base, live_attempts.clone(), detector, recovery.clone());
        let admin =
            DomainAdmin::new(&base, histories.clone(), collections.clone(), processes.clone());
        let admin = Arc::new(admin);
        let janitor = Janitor::new(&base, unlocker.clone(), recovery.clone(), admin.clone());
        let janitor = Arc::new(janitor);
        let election = Arc::new(JanitorElection::new(&base, janitor.clone(), processes.clone()));
        let Base { context, store, time, table } = base;
        Ok(SharedEngine(Arc::new(Self {
            context,
            traffic,
            store,
            time,
            table,
            live_attempts,
            contention,
            processes,
            hot,
            recent,
            singles,
            histories,
            verdicts,
            unlocker,
            applier,
            recovery,
            reads,
            turns,
            aliases,
            collections,
            barrier,
            admin,
            janitor,
            election,
        })))
    }

    /// Opens or creates the domain, and starts its tasks.
    pub(crate) async fn start_up(&self, create: bool) -> Result<(), AttemptError> {
        let deadline = self.context.deadline(self.context.config.timeout);
        let has_clock = self.time.look_at_the_clock().await;
        self.time.confirm_not_ahead().await?;
        self.admin.find_domain(create, &deadline).await?;
        let today = self.time.today();
        self.table.ensure_partition(today, &deadline).await?;
        // Not needed yet: the janitor retries, and reports a lasting failure.
        if let Err(error) = self.table.ensure_partition(today.plus(1), &deadline).await {
            tracing::warn!(domain = %self.table.domain(), %error, "tomorrow's partition of the transaction table is not made yet");
        }
        if has_clock {
            self.time.watch_the_clock();
        }
        self.election.start();
        Ok(())
    }
}

/// Puts the lower parts of an engine together.
fn base_of(store: Arc<dyn Store>, name: &str, config: Config, traffic: &Arc<Traffic>) -> Base {
    let tasks = TaskTracker::new();
    let serving = Arc::new(ServingRuntime::new(config.runtime.clone()));
    // By default stores on servers batch requests, and embedded stores do not.
    let batches = config.request_batching.unwrap_or(store.limits().batches_requests);
    let front = || -> Arc<dyn Store> {
        match batches {
            true => {
                let (store, clock) = (store.clone(), config.clock.clone());
                Arc::new(RequestBatching::new(
                    store,
                    tasks.clone(),
                    clock,
                    serving.clone(),
                    traffic.clone(),
                ))
            }
            false => store.clone(),
        }
    };
    let (documents, records) = (front(), front());
    let context = Arc::new(Context::new(config, Lifecycle::new(tasks, serving)));
    let store = Arc::new(StoreAccess::new(context.clone(), documents, records));
    let time = Arc::new(Time::new(context.clone(), store.clone()));
    let table = Arc::new(Table::new(context.clone(), store.clone(), time.clone(), name));
    Base { context, store, time, table }
}

/// The parts that decide holders, and apply or release their locks.
struct HolderParts {
    detector: Arc<FailureDetector>,
    verdicts: Arc<Verdicts>,
    unlocker: Arc<Unlocker>,
    applier: Arc<Applier>,
    recovery: Arc<Recovery>,
}

impl HolderParts {
    fn new(
        base: &Base,
        hot: &Arc<Hot>,
        recent: &Arc<RecentCommits>,
        live_attempts: &Arc<LiveAttempts>,
        contention: &Arc<ContentionLog>,
    ) -> Self {
        let detector = Arc::new(FailureDetector::default());
        let (live, contention) = (live_attempts.clone(), contention.clone());
        let verdicts = Verdicts::new(base, live.clone(), detector.clone(), contention);
        let verdicts = Arc::new(verdicts);
        let unlocker = Arc::new(Unlocker::new(base));
        let (hot, recent) = (hot.clone(), recent.clone());
        let applier = Applier::new(base, hot, recent, live, detector.clone(), verdicts.clone());
        let applier = Arc::new(applier);
        let recovery = Recovery::new(base, verdicts.clone(), unlocker.clone(), applier.clone());
        Self { detector, verdicts, unlocker, applier, recovery: Arc::new(recovery) }
    }
}

/// Checks a domain name, which becomes a part of collection names.
fn check_name(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts && name.len() <= 64 && name.chars().all(plain) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{name:?} cannot name a domain: use 1 to 64 of a-z, 0-9, - and _, beginning with a letter or a digit"
    )))
}
