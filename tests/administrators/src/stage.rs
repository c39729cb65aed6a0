//! One case on one server: processes, load, and final check.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use txn_core::{Config, Domain, Error, ErrorKind};
use txn_es::{EsConfig, EsStore};
use txn_fixtures::bank;
use txn_fixtures::complaints::Complaint;
use txn_fixtures::fixture::{Fixture, PATIENCE};
use txn_fixtures::plain_client::PlainClient;

use crate::book::{self, Fate, Role};
use crate::found::Found;
use crate::judge::{Named, judge};
use crate::load::{self, ACCOUNTS, COUNTERS, Load, OPENING, Phase, Process};
use crate::reports::Reports;
use crate::server::Server;

/// The time after which a dead process is noticed.
pub(crate) const LEASE: Duration = Duration::from_millis(500);

/// The number of workers of each process.
pub(crate) const WORKERS: usize = 4;

/// The number of acknowledged transactions before and after the job.
const ROUND: u64 = 60;

/// The number of final passes of the janitor.
const PASSES: u32 = 10;

/// The allowed outcomes of transactions while the administrator works.
///
/// Afterwards transactions succeed in any case. A process under [`Service::Reopen`] first has to
/// open its collections again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Service {
    /// Transactions are acknowledged, or end with a transient error.
    GoesOn,
    /// Transactions are acknowledged, or refused in this way. A refusal has one of these kinds and
    /// all these words.
    Refused(&'static [ErrorKind], &'static [&'static str]),
}

/// How the application reaches the server, and the names that it opens.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The addresses of each process.
    pub(crate) processes: Vec<EsConfig>,
    /// The alias by which the accounts are opened, with its index.
    pub(crate) alias: Option<(String, String)>,
}

impl Setup {
    /// Returns two processes, each with its own connection.
    ///
    /// # Panics
    /// If the server's address is invalid.
    #[must_use]
    pub(crate) fn plain(server: &Server) -> Self {
        let config = config(&server.url);
        Self { processes: vec![config.clone(), config], alias: None }
    }
}

/// Returns the configuration of a process for an address.
///
/// # Panics
/// If the address is invalid.
#[must_use]
pub(crate) fn config(url: &str) -> EsConfig {
    timeouts(EsConfig::from_url(url).expect("an address"))
}

/// Sets how long a process waits for answers.
#[must_use]
pub(crate) fn timeouts(config: EsConfig) -> EsConfig {
    config.with_request_timeout(Duration::from_secs(5))
}

/// The result of a case.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Transactions that were acknowledged while the administrator worked.
    pub during: u64,
    /// All acknowledged transactions.
    pub acknowledged: u64,
    /// Errors of callers: phase, kind, count, some messages.
    pub complaints: Vec<String>,
    /// The number of documents that were reported by name.
    pub named: usize,
    /// The reports with their counts.
    pub reports: BTreeMap<String, u64>,
    /// Violations.
    pub violations: Vec<String>,
}

/// One case on one server.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) load: Load,
    fixture: Fixture,
    /// The name by which the accounts are opened.
    alias: String,
    accounts: String,
    entries: String,
    reports: Arc<Reports>,
    during: u64,
    violations: Vec<String>,
}

impl Stage {
    /// Opens the domain in each process, and creates accounts and counters.
    ///
    /// # Panics
    /// If that fails.
    pub(crate) async fn open(server: &Server, setup: impl FnOnce(&Fixture) -> Setup) -> Self {
        Self::prepared(server, async |fixture| setup(fixture)).await
    }

    /// The same, after a preparation by the administrator.
    ///
    /// # Panics
    /// If that fails.
    pub(crate) async fn prepared(
        server: &Server,
        prepare: impl AsyncFnOnce(&Fixture) -> Setup,
    ) -> Self {
        let fixture = Fixture::at(&server.url).await;
        let setup = prepare(&fixture).await;
        let entries = fixture.name("entries");
        let name = fixture.name("accounts");
        let (alias, accounts) = setup.alias.unwrap_or_else(|| (name.clone(), name));
        let reports = Arc::new(Reports::new(&[&alias, &accounts], &entries));
        let mut processes = Vec::new();
        for config in setup.processes {
            let opened = open(config, fixture.domain_name(), &alias, &entries, &reports).await;
            processes.push(opened.expect("a process opens its collections"));
        }
        let Process { domain, accounts: opened, .. } = &processes[0];
        let names: Vec<String> = (0..ACCOUNTS).map(book::account).collect();
        bank::fund(domain, opened, &names, OPENING).await;
        let counters: Vec<String> = (0..COUNTERS).flat_map(book::counter).collect();
        bank::fund(domain, opened, &counters, 0).await;
        let load = Load::new(processes, reports.clone());
        let (during, violations) = (0, Vec::new());
        let server = server.clone();
        Self { server, load, fixture, alias, accounts, entries, reports, during, violations }
    }

    /// Returns a plain client of the server.
    #[must_use]
    pub(crate) fn plain(&self) -> &PlainClient {
        &self.fixture.plain
    }

    /// Returns a name that no other case uses.
    #[must_use]
    pub(crate) fn name(&self, what: &str) -> String {
        self.fixture.name(what)
    }

    /// Returns the domain's name, which is a prefix.
    ///
    /// All indices of this case begin with the prefix.
    #[must_use]
    pub(crate) fn domain_name(&self) -> &str {
        self.fixture.domain_name()
    }

    /// Returns the name by which the accounts are opened.
    #[must_use]
    pub(crate) fn alias(&self) -> &str {
        &self.alias
    }

    /// Returns the index of the accounts.
    #[must_use]
    pub(crate) fn accounts(&self) -> &str {
        &self.accounts
    }

    /// Returns the index of the entries.
    #[must_use]
    pub(crate) fn entries(&self) -> &str {
        &self.entries
    }

    /// Returns both indices.
    #[must_use]
    pub(crate) fn indices(&self) -> [&str; 2] {
        [&self.accounts, &self.entries]
    }

    /// Opens a process with its collections.
    ///
    /// # Errors
    /// As the library.
    pub(crate) async fn process(&self) -> Result<Process, Error> {
        self.process_at(config(&self.server.url)).await
    }

    /// Opens a process with its collections, with this access to the server.
    ///
    /// # Errors
    /// As the library.
    pub(crate) async fn process_at(&self, config: EsConfig) -> Result<Process, Error> {
        let (domain, reports) = (self.fixture.domain_name(), &self.reports);
        open(config, domain, &self.alias, &self.entries, reports).await
    }

    /// Registers a document among the accounts that no transaction writes.
    pub(crate) fn owns(&self, id: &str) {
        self.load.enter_into_book(|book| {
            book.owned.insert((Role::Accounts, id.to_owned()), Fate::Stays);
        });
    }

    /// Records a violation.
    pub(crate) fn violation(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Records a violation unless the condition holds.
    pub(crate) fn check(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.violation(what);
        }
    }

    /// Waits until callers received as many errors as there are workers.
    ///
    /// Counts from the start of the administrator's work.
    ///
    /// # Errors
    /// If they do not come in time.
    pub(crate) async fn complains(&self) -> Result<(), String> {
        let workers = self.load.size() * WORKERS;
        let goal = self.complaints_during() + u64::try_from(workers).unwrap_or(u64::MAX);
        let told = async {
            while self.complaints_during() < goal {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let told = tokio::time::timeout(PATIENCE, told).await;
        told.map_err(|_| "callers were told no errors".to_owned())
    }

    /// Returns the number of errors since the administrator began.
    pub(crate) fn complaints_during(&self) -> u64 {
        let complaints = self.load.complaints();
        let of_job = complaints.iter().filter(|((phase, _), _)| *phase == Phase::During);
        of_job.map(|(_, complaint)| complaint.count).sum()
    }

    /// Runs the load before, during and after the job.
    pub(crate) fn during<'a>(
        &'a mut self,
        service: Service,
        job: impl AsyncFnOnce(&Self) -> Result<(), String> + 'a,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        // Boxed once here, instead of in every case.
        Box::pin(self.run_beside(service, job))
    }

    async fn run_beside(
        &mut self,
        service: Service,
        job: impl AsyncFnOnce(&Self) -> Result<(), String>,
    ) {
        let mut result = Ok(());
        let mut acknowledged = 0;
        let (load, this) = (self.load.clone(), &*self);
        load.enter(Phase::Before);
        let steps = async {
            load.acknowledges(ROUND).await?;
            load.enter(Phase::During);
            let before = load.acknowledged();
            let done = job(this).await;
            load.enter(Phase::After);
            acknowledged = load.acknowledged() - before;
            done?;
            load.acknowledges(ROUND).await.map_err(|why| format!("after the job: {why}"))
        };
        load.run(WORKERS, async { result = steps.await }).await;
        self.during += acknowledged;
        if let Err(why) = result {
            self.violation(why);
        }
        self.judge_service(service);
    }

    fn judge_service(&mut self, service: Service) {
        for ((phase, _), complaint) in self.load.complaints() {
            let first = complaint.messages.first().cloned().unwrap_or_default();
            let told =
                format!("{phase:?}: {:?} {} times: {first}", complaint.kind, complaint.count);
            match service {
                _ if complaint.kind.is_transient_or_unknown() => {}
                Service::Refused(kinds, _)
                    if phase == Phase::During && kinds.contains(&complaint.kind) => {}
                // The library reported it by name, and the judge checks the loss.
                _ if complaint.kind == ErrorKind::Damaged => {}
                _ => self.violation(format!("callers were told {told}")),
            }
        }
        let Service::Refused(kinds, words) = service else { return };
        let complaints = self.load.complaints();
        let of_job = complaints.iter().filter(|((phase, _), complaint)| {
            *phase == Phase::During && kinds.contains(&complaint.kind)
        });
        let mut messages = of_job.flat_map(|(_, complaint)| &complaint.messages);
        let is_told = messages.any(|message| words.iter().all(|word| message.contains(word)));
        let instead: Vec<String> = lines(&complaints);
        self.check(
            is_told,
            format!("no caller was told {words:?} as one of {kinds:?}: {instead:?}"),
        );
    }

    /// Shuts all processes down.
    pub(crate) async fn drain(&mut self) {
        for number in 0..self.load.size() {
            let began = Instant::now();
            let applied = self.load.process(number).domain.shutdown(PATIENCE).await;
            // Other processes apply the rest, and the audit checks that.
            let has_ended = applied || began.elapsed() < PATIENCE;
            self.check(has_ended, format!("process {number} did not end its work"));
        }
    }

    /// Waits for rest, and compares.
    ///
    /// # Panics
    /// If the server does not answer a plain client.
    pub(crate) async fn end(mut self) -> Outcome {
        self.drain().await;
        let audit = match self.audit().await {
            Ok(audit) => audit,
            Err(error) => {
                self.violation(format!("the domain cannot be audited: {error}"));
                Named::default()
            }
        };
        let found = Found::read(self.plain(), self.accounts(), self.entries()).await;
        let book = self.load.book();
        let named = self.reports.named();
        let lost = judge(&book, &found, &Named::default());
        if lost.is_empty() && audit != Named::default() {
            self.violation(format!("the audit names documents, and nothing is lost: {audit:?}"));
        }
        self.violations.extend(judge(&book, &found, &named));
        let outcome = Outcome {
            during: self.during,
            acknowledged: self.load.acknowledged(),
            complaints: lines(&self.load.complaints()),
            named: named.documents.len(),
            reports: self.reports.words(),
            violations: self.violations,
        };
        // After a violation the indices stay, for inspection.
        if outcome.violations.is_empty() {
            self.fixture.clear().await;
        }
        outcome
    }

    /// Recovers the rest by a new process.
    ///
    /// Returns the documents that the process reports.
    async fn audit(&mut self) -> Result<Named, Error> {
        let Process { domain, .. } = self.process().await?;
        let mut report = domain.admin().janitor_pass().await?;
        for _ in 1..PASSES {
            if report.is_clean() {
                break;
            }
            tokio::time::sleep(LEASE).await;
            report = domain.admin().janitor_pass().await?;
        }
        let audit = Reports::new(&[&self.alias, &self.accounts], &self.entries);
        for (key, what) in &report.damaged {
            audit.name(&key.collection, &key.id, what);
            self.reports.name(&key.collection, &key.id, what);
        }
        let left = report.locked.len() + report.open.len() + report.unreachable.len();
        let is_excused = !report.damaged.is_empty();
        self.check(left == 0 || is_excused, format!("the audit is not clean: {report:?}"));
        self.check(domain.shutdown(PATIENCE).await, "the audit's process did not end its work");
        Ok(audit.named())
    }
}

/// Opens the domain and its collections in a process of the application.
async fn open(
    config: EsConfig,
    domain: &str,
    accounts: &str,
    entries: &str,
    reports: &Arc<Reports>,
) -> Result<Process, Error> {
    let store = EsStore::connect(config).await.map_err(Error::from)?;
    let settings = Config::default()
        .with_lease(LEASE)
        .with_janitor_interval(Some(Duration::from_secs(2)))
        .with_timeout(Duration::from_secs(10))
        .with_observer(Some(reports.clone()));
    let domain = Domain::open_or_create(Arc::new(store), domain, settings).await?;
    let accounts = domain.create_collection(accounts, Some(bank::MAPPINGS)).await?;
    let entries = domain.create_collection(entries, Some(load::ENTRIES)).await?;
    Ok(Process { domain, accounts, entries })
}

fn lines(complaints: &BTreeMap<(Phase, String), Complaint>) -> Vec<String> {
    let line = |((phase, _), complaint): (&(Phase, String), &Complaint)| {
        let Complaint { kind, count, messages } = complaint;
        format!("{phase:?}: {count} × {kind:?}: {}", messages.join(" | "))
    };
    complaints.iter().map(line).collect()
}
