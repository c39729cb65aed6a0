//! The gateway: one request, one answer.

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use metrics::{Gauge, counter, gauge};
use serde_json::json;
use txn_core::Domain;
use txn_core::admin::Fault;
use txn_es::{EsStore, ForwardedAnswer};

use crate::access::caller::Caller;
use crate::access::rights::Verb;
use crate::asked::{Asked, check_content};
use crate::audit::Named;
use crate::backend::Backend;
use crate::config::ServeConfig;
use crate::console;
use crate::documents::bulk::bulk;
use crate::documents::single::{self, Write};
use crate::exchange::Exchange;
use crate::figures;
use crate::http::form::check_form;
use crate::http::limits::{Limits, Share};
use crate::http::problem::{Code, Problem};
use crate::http::reply::{Reply, passed, response};
use crate::http::route::{Route, Work};
use crate::http::shape::Shape;
use crate::http::site::check_site;
use crate::openapi::openapi;
use crate::operator;
use crate::passing::destination::{Destination, Destinations};
use crate::passing::names::{check_body, check_read};
use crate::passing::paths::segments;
use crate::passing::policy::Access;
use crate::passing::upstream::pass;
use crate::passing::writes::writes_documents;
use crate::samples::{INTERVAL, Samples};
use crate::systems::events::{self, Ending};
use crate::systems::{http_requests, locks, requests};
use crate::transactions::{commit, outcome, read};

/// How long the answer of a check of the store holds.
const FRESH: Duration = Duration::from_secs(1);

/// The pause between two looks at files.
const LOOK: Duration = Duration::from_secs(2);

/// The pause between two deletions of expired answers.
const PURGE: Duration = Duration::from_secs(600);

/// How long the store may take for its check.
const CHECK: Duration = Duration::from_secs(2);

/// An answer of the gateway, or of the servers behind it.
enum Answer {
    Own(Reply),
    Passed(ForwardedAnswer, Arc<Share>),
}

/// The gateway of one domain.
pub(crate) struct Gateway {
    backend: Backend,
    limits: Limits,
    closing: AtomicBool,
    running: Gauge,
    samples: Samples,
    /// The last check of the store. The lock allows one check at a time.
    checked: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("backend", &self.backend).finish_non_exhaustive()
    }
}

impl Gateway {
    pub(crate) fn new(domain: Domain, config: ServeConfig) -> Self {
        figures::describe();
        let limits = Limits::new(&config);
        let running = gauge!(figures::RUNNING, "domain" => domain.name().to_owned());
        let backend = Backend::new(domain, config);
        let (closing, samples) = (AtomicBool::new(false), Samples::new());
        Self { backend, limits, closing, running, samples, checked: None.into() }
    }

    pub(crate) fn config(&self) -> &ServeConfig {
        &self.backend.config
    }

    /// Carries out submitted requests, if the settings ask for it. The future never ends.
    pub(crate) async fn process_requests(&self) {
        if !self.config().processor {
            return std::future::pending().await;
        }
        // The processor ends with this future, and its tasks at the shutdown.
        let start = || async { Ok(self.backend.systems.requests().await?.start(None)) };
        run_role("the processor of submitted requests", start).await;
    }

    /// Sends HTTP requests after commits, if the settings ask for it. The future never ends.
    pub(crate) async fn send_http_requests(&self) {
        let Some(http) = &self.config().http_requests else {
            return std::future::pending().await;
        };
        run_role("the dispatcher", || self.backend.systems.start_dispatcher(http)).await;
    }

    /// Ends the tasks of the systems. Returns whether all of them ended in time.
    pub(crate) async fn shut_down_systems(&self) -> bool {
        self.backend.systems.shutdown(self.config().drain).await
    }

    /// Refuses requests from now on, except probes.
    pub(crate) fn stop_admission(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Reads the files of the settings again after each change. The future never ends.
    pub(crate) async fn watch_files(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let (tokens, tls) = (self.config().tokens.clone(), self.config().tls.clone());
            let reload = move || {
                let tokens = tokens.map_or(Ok(false), |tokens| tokens.reload());
                (tokens, tls.map_or(Ok(false), |tls| tls.reload()))
            };
            let Ok((tokens, tls)) = tokio::task::spawn_blocking(reload).await else { continue };
            self.note_reload("tokens", tokens);
            self.note_reload("certificate", tls);
        }
    }

    fn note_reload(&self, file: &'static str, reloaded: io::Result<bool>) {
        match reloaded {
            Ok(false) => {}
            Ok(true) => tracing::info!(file, "a changed file holds from now on"),
            Err(error) => {
                tracing::warn!(file, %error, "the file does not fit, and its former content holds");
                let domain = self.backend.domain.name().to_owned();
                counter!(figures::BROKEN_FILES, "domain" => domain, "file" => file).increment(1);
            }
        }
    }

    /// Takes a sample of the requests at each interval. The future never ends.
    pub(crate) async fn take_samples(&self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.samples.take(tokio::time::Instant::now());
        }
    }

    /// Deletes expired answers now and then. The future never ends.
    pub(crate) async fn purge_answers(&self) {
        loop {
            tokio::time::sleep(PURGE).await;
            let purged = match self.backend.domain.purge_answers().await {
                Ok(purged) => purged,
                Err(error) => {
                    tracing::warn!(%error, "expired answers are deleted later");
                    continue;
                }
            };
            if purged.deleted > 0 {
                tracing::info!(answers = purged.deleted, "expired answers are deleted");
            }
            for Fault { subject, message, .. } in &purged.unreadable {
                tracing::warn!(%subject, %message, "a stored answer cannot be read");
            }
        }
    }

    /// Answers a request.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let mut body = pin!(body);
        let found = Route::find(&parts.method, parts.uri.path());
        let (path, shape) = match &found {
            Ok(route) => (route.work.name(), route.work.shape()),
            Err(_) => ("none", Shape::of_path(parts.uri.path())),
        };
        let reads = found.as_ref().is_ok_and(|route| route.work.returns_contents());
        let commits = found.as_ref().is_ok_and(|route| route.work.commits());
        let is_probe = found.as_ref().is_ok_and(|route| route.work.is_probe());
        let login = Caller::of(self.config().tokens.as_ref(), &parts.headers);
        let name = login.as_ref().ok().and_then(Caller::name);
        let named = Arc::new(Named::new(name));
        let traced = (self.backend.domain.name(), &self.samples);
        let exchange = Exchange::begin(&parts, named.clone(), (path, shape, is_probe), traced);
        let login = match (login, &found) {
            // Orchestrators have no token.
            (Err(_), Ok(route)) if route.work.is_open() => Ok(Caller::Anyone),
            (login, _) => login,
        };
        let answer = match check_site(&parts).and(login) {
            Ok(caller) => {
                let body = body.as_mut();
                self.carry_out((found, shape), &parts, body, (&caller, &named)).await
            }
            Err(problem) => Err(problem),
        };
        if let Err(problem) = &answer {
            self.limits.discard_after(problem, &parts.headers, body).await;
        }
        let commits = commits && matches!(answer, Ok(Answer::Own(_)));
        let code = answer.as_ref().err().map_or("", |problem| problem.code().text());
        let response = match answer {
            Ok(Answer::Passed(answer, share)) => passed(answer, &share),
            Ok(Answer::Own(reply)) => {
                let counted = reply.counted(Arc::new(self.limits.share()), reads);
                self.own(counted, shape, &parts)
            }
            Err(problem) => self.own(Err(problem), shape, &parts),
        };
        exchange.answered(response.status(), code, commits);
        response
    }

    fn own(
        &self,
        answer: Result<Reply, Problem>,
        shape: Shape,
        parts: &Parts,
    ) -> Response<Full<Bytes>> {
        response(answer, shape, &parts.headers, self.config().sends_product())
    }

    async fn carry_out<B>(
        &self,
        (found, shape): (Result<Route, Problem>, Shape),
        parts: &Parts,
        body: Pin<&mut B>,
        (caller, named): (&Caller, &Arc<Named>),
    ) -> Result<Answer, Problem>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let servers = self.config().servers.as_ref();
        let found = match (found, servers) {
            (Ok(route), _) if route.work.is_probe() => {
                if route.work == Work::Metrics {
                    caller.need_any(&[Verb::Metrics])?;
                }
                return self.probe(route.work).await.map(Answer::Own);
            }
            (Ok(route), _) => Ok(route),
            // The servers may have the path, or the method of the path.
            (Err(problem), Some(servers)) if problem.is_elsewhere() && shape == Shape::Server => {
                Err(servers)
            }
            (Err(problem), _) => return Err(problem),
        };
        if self.closing.load(Ordering::Acquire) {
            return Err(Problem::new(Code::Closing, "the gateway takes no more requests"));
        }
        let _permit = self.limits.admit()?;
        let _running = Running::begin(&self.running);
        let received = self.limits.receive(body).await?;
        let body = received.bytes.clone();
        match &found {
            Ok(route) if route.work.is_form() => check_form(&parts.headers, &body)?,
            _ => check_content(&parts.headers, &body)?,
        }
        let route = match found {
            Err(servers) => {
                let path = segments(parts.uri.path())?;
                let destinations = self.destinations(servers, caller, named);
                let access = Box::pin(destinations.of_path(parts, &path)).await?;
                return self.pass(servers, caller, (parts, &path, body), access).await;
            }
            Ok(route) => route,
        };
        if let Some(servers) = servers {
            let destination =
                self.destinations(servers, caller, named).of_route(&route, parts, &body);
            if let Destination::Servers(access) = Box::pin(destination).await? {
                let path = segments(parts.uri.path())?;
                return self.pass(servers, caller, (parts, &path, body), access).await;
            }
        }
        let asking = (caller.clone(), named.clone(), self.limits.read_budget());
        let mut asked = Asked::new(route, parts, body, self.config(), asking)?;
        Box::pin(self.work(&mut asked)).await.map(Answer::Own)
    }

    fn destinations<'a>(
        &'a self,
        servers: &'a EsStore,
        caller: &'a Caller,
        named: &'a Named,
    ) -> Destinations<'a> {
        Destinations::new(&self.backend, servers, caller, named)
    }

    async fn pass(
        &self,
        servers: &EsStore,
        caller: &Caller,
        (parts, path, body): (&Parts, &[String], Bytes),
        access: Access,
    ) -> Result<Answer, Problem> {
        match access {
            Access::Read => check_read(caller, path, parts.uri.query(), &body)?,
            // A mapping may name an index whose documents the searches then show.
            Access::Write if !writes_documents(path) => check_body(caller, &body)?,
            Access::Write => {}
        }
        let share = Arc::new(self.limits.share());
        let room = (self.config().max_answer, share.clone());
        let answer = pass(servers, parts, path, access, body, room).await?;
        Ok(Answer::Passed(answer, share))
    }

    async fn work(&self, asked: &mut Asked) -> Result<Reply, Problem> {
        let backend = &self.backend;
        match asked.route.work {
            Work::Bulk | Work::BulkOf => bulk(backend, asked).await,
            Work::Get => single::get(backend, asked).await,
            Work::Source => single::source(backend, asked).await,
            Work::Index => single::write(backend, asked, Write::Index).await,
            Work::IndexNew => single::write(backend, asked, Write::IndexNew).await,
            Work::Create => single::write(backend, asked, Write::Create).await,
            Work::Update => single::write(backend, asked, Write::Update).await,
            Work::Delete => single::write(backend, asked, Write::Delete).await,
            Work::Transaction | Work::Commit => commit::commit(backend, asked).await,
            Work::Read => read::read(backend, asked).await,
            Work::Outcome => outcome::outcome(backend, asked).await,
            Work::DomainStatus
            | Work::Hanging
            | Work::Transactions
            | Work::Locks
            | Work::Processes
            | Work::Waits
            | Work::Hot
            | Work::TransactionReport
            | Work::DocumentReport => operator::answers::answer(backend, asked).await,
            Work::LockList => locks::list(backend, asked).await,
            Work::LockLook => locks::look(backend, asked).await,
            Work::LockAcquire => locks::acquire(backend, asked).await,
            Work::LockRenew => locks::renew(backend, asked).await,
            Work::LockRelease => locks::release(backend, asked).await,
            Work::Emit => commit::emit(backend, asked).await,
            Work::Backlog => events::backlog(backend, asked).await,
            Work::HttpResult => http_requests::result(backend, asked).await,
            Work::DeadLetters => events::dead_letters(backend, asked).await,
            Work::DeadLetterRetry => events::end_dead_letter(backend, asked, Ending::Retry).await,
            Work::DeadLetterDrop => events::end_dead_letter(backend, asked, Ending::Drop).await,
            Work::RequestList => requests::list(backend, asked).await,
            Work::RequestSubmit => requests::submit(backend, asked).await,
            Work::RequestStatus => requests::status(backend, asked).await,
            Work::RequestCancel => requests::cancel(backend, asked).await,
            Work::Console
            | Work::ConsoleStyle
            | Work::ConsoleTransactions
            | Work::ConsoleTransaction
            | Work::ConsoleStuck
            | Work::ConsoleWaits
            | Work::ConsoleDocuments
            | Work::ConsoleDocument
            | Work::ConsoleProcesses
            | Work::ConsolePartitions
            | Work::ConfirmAbort
            | Work::Abort
            | Work::ConfirmRecover
            | Work::Recover => console::answer(backend, &self.samples, asked).await,
            Work::CreateCollection => self.create_collection(asked).await,
            Work::HasCollection => self.has_collection(asked).await,
            Work::Info => Ok(self.info()),
            Work::OpenApi => Ok(Reply::json(StatusCode::OK, &openapi())),
            work @ (Work::Health | Work::Ready | Work::Metrics) => self.probe(work).await,
        }
    }

    async fn has_collection(&self, asked: &mut Asked) -> Result<Reply, Problem> {
        asked.finish_parameters()?;
        asked.named.collection(asked.route.value(0));
        self.backend.existing(&asked.caller, Verb::Read, asked.route.value(0)).await?;
        Ok(Reply::json(StatusCode::OK, &json!({})))
    }

    /// The name and the version, in the servers' shape.
    fn info(&self) -> Reply {
        let body = json!({
            "name": self.backend.domain.config().process_name(),
            "cluster_name": self.backend.domain.name(),
            "version": { "number": env!("CARGO_PKG_VERSION"), "distribution": "txn" },
            "tagline": "all or nothing",
        });
        Reply::json(StatusCode::OK, &body)
    }

    async fn create_collection(&self, asked: &mut Asked) -> Result<Reply, Problem> {
        asked.finish_parameters()?;
        let name = asked.route.value(0);
        asked.named.collection(name);
        asked.caller.need(Verb::Create, name)?;
        if !self.config().create_collections {
            let detail = "this gateway creates no collections: use `txn init`";
            return Err(Problem::new(Code::Unsupported, detail));
        }
        if self.backend.find(name).await?.is_some() {
            let problem = Problem::new(Code::Invalid, format!("the collection {name} exists"));
            let kind = "resource_already_exists_exception";
            return Err(problem.of_kind(StatusCode::BAD_REQUEST, kind));
        }
        if self.config().servers.is_some() {
            // A mapping may name an index whose documents the searches then show.
            check_body(&asked.caller, asked.text()?.as_bytes())?;
        }
        let mappings = if asked.has_body() { Some(asked.text()?) } else { None };
        let created = self.backend.create(&asked.caller, name, mappings).await?;
        let body = json!({
            "acknowledged": true, "shards_acknowledged": true, "index": created.name(),
        });
        Ok(Reply::json(StatusCode::OK, &body))
    }

    async fn probe(&self, work: Work) -> Result<Reply, Problem> {
        match work {
            Work::Metrics => match &self.config().metrics {
                Some(render) => Ok(Reply::plain(render())),
                None => Err(Problem::new(Code::NotFound, "this gateway has no metrics")),
            },
            Work::Ready if self.closing.load(Ordering::Acquire) => {
                Err(Problem::new(Code::Closing, "the gateway takes no more requests"))
            }
            Work::Ready if !self.has_store().await => {
                Err(Problem::new(Code::Unavailable, "the store does not answer"))
            }
            _ => Ok(Reply::json(StatusCode::OK, &json!({ "status": "ok" }))),
        }
    }

    /// Whether the store answers.
    async fn has_store(&self) -> bool {
        let mut checked = self.checked.lock().await;
        if let Some((at, answers)) = *checked
            && at.elapsed() < FRESH
        {
            return answers;
        }
        let overview = self.backend.domain.admin().overview();
        let answers = matches!(tokio::time::timeout(CHECK, overview).await, Ok(Ok(_)));
        *checked = Some((Instant::now(), answers));
        answers
    }
}

/// Starts a role of the gateway, again after a failure. The future never ends.
async fn run_role<T, F>(role: &str, start: impl Fn() -> F)
where
    F: Future<Output = Result<T, Problem>>,
{
    loop {
        match start().await {
            Ok(_running) => return std::future::pending().await,
            Err(problem) => {
                let (code, why) = (problem.code().text(), problem.detail());
                tracing::warn!(role, code, why, "the role starts later");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// A running request, for the gauge.
struct Running<'a>(&'a Gauge);

impl<'a> Running<'a> {
    fn begin(gauge: &'a Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
