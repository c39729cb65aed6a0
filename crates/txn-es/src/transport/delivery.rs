//! Chooses the node of a request, and the time of another try.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::{Either, select};
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until, timeout_at};
use txn_store::{StoreError, StoreErrorKind};

use super::authentication::{Authentication, Used};
use super::health::{Budget, Fault};
use super::node::{Connection, Node, Room};
use super::{ADMIN_ROOM, Answer, AnswerMeter, Failure, Request, RequestClass};
use crate::answers::classify;

/// The part of the request timeout after which a node is silent.
///
/// A silent node has given no answer at all.
const SILENCE: u32 = 10;

/// The slowest upload that is not silence, in bytes per millisecond. 1,000 bytes per millisecond
/// are 1 MB/s.
const SLOWEST_UPLOAD: u64 = 1_000;

/// The nodes of one cluster.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    next: AtomicUsize,
    authentication: Authentication,
    budget: Mutex<Budget>,
    silence: Duration,
}

/// A request, independent of its node.
struct Outgoing {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    /// Headers that replace those of the store.
    headers: HeaderMap,
    body: Option<Bytes>,
    items: usize,
    room: usize,
    meter: Option<AnswerMeter>,
    repeatable: bool,
    deadline: Instant,
}

impl Outgoing {
    fn new(request: &Request<'_>, timeout: Duration) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let repeatable = request.class == RequestClass::Read || request.method == Method::GET;
        Self {
            method: request.method.clone(),
            path: request.path.to_owned(),
            query: request.query.iter().map(owned).collect(),
            headers: HeaderMap::new(),
            body: request.body.clone(),
            items: request.items,
            room: request.room,
            meter: None,
            repeatable,
            deadline: Instant::now() + timeout,
        }
    }

    fn room(&self) -> Room<'_> {
        Room { bytes: self.room, meter: self.meter.as_ref() }
    }

    /// Returns the request to the node at an address.
    ///
    /// The address may have a prefix.
    fn to(&self, base: &Url) -> reqwest::Request {
        let mut url = base.clone();
        url.set_path(&format!("{}{}", base.path().trim_end_matches('/'), self.path));
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        let mut request = reqwest::Request::new(self.method.clone(), url);
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(body) = &self.body {
            let lines = self.path.ends_with("_bulk");
            let kind = if lines { "application/x-ndjson" } else { "application/json" };
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            *request.body_mut() = Some(body.clone().into());
        }
        let headers = request.headers_mut();
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        request
    }
}

impl Nodes {
    pub(super) fn new(
        nodes: Vec<Node>,
        authentication: Authentication,
        request_timeout: Duration,
    ) -> Self {
        Self {
            nodes,
            next: AtomicUsize::new(0),
            authentication,
            budget: Mutex::new(Budget::new()),
            silence: request_timeout / SILENCE,
        }
    }

    /// The number of nodes that requests avoid now.
    pub(super) fn left_out(&self) -> usize {
        self.nodes.iter().filter(|node| node.health.lock().is_out()).count()
    }

    pub(super) fn labels(&self) -> impl ExactSizeIterator<Item = &str> {
        self.nodes.iter().map(|node| &*node.label)
    }

    /// Sends a request, and repeats a repeatable one once without an answer.
    pub(super) fn deliver(
        self: Arc<Self>,
        request: &Request<'_>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send + use<> {
        let outgoing = Outgoing::new(request, timeout);
        async move {
            match outgoing.repeatable {
                true => self.twice(&outgoing).await,
                false => self.once(&outgoing, &Mutex::default(), &[], &Notify::new()).await,
            }
        }
    }

    /// Sends a request of another program, once.
    pub(super) fn forward(
        self: Arc<Self>,
        request: &Request<'_>,
        headers: HeaderMap,
        meter: Option<AnswerMeter>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send + use<> {
        let outgoing = Outgoing::new(request, timeout);
        let outgoing = Outgoing { headers, meter, repeatable: false, ..outgoing };
        async move { self.once(&outgoing, &Mutex::default(), &[], &Notify::new()).await }
    }

    /// Sends a request with a possible second try.
    ///
    /// The second try begins in three cases: the first one fails, its node is silent, or the node
    /// is slow and the budget allows a repetition.
    async fn twice(self: &Arc<Self>, outgoing: &Outgoing) -> Result<Answer, Failure> {
        let (tried, silent) = (Mutex::default(), Notify::new());
        let mut first = pin!(self.once(outgoing, &tried, &[], &silent));
        let mut slow = pin!(sleep(self.patience(outgoing)));
        let mut is_slow = false;
        let has_failed = loop {
            tokio::select! {
                biased;
                result = &mut first => match result {
                    Err(Failure::Lost(error)) if self.may_fare_better(&error, outgoing) => break true,
                    result => return result,
                },
                () = silent.notified() => break false,
                () = &mut slow, if !is_slow => {
                    is_slow = true;
                    if self.budget.lock().spend() {
                        break false;
                    }
                }
            }
        };
        let others = tried.lock().clone();
        let (tried, silent) = (Mutex::default(), Notify::new());
        let second = pin!(self.once(outgoing, &tried, &others, &silent));
        match has_failed {
            true => second.await,
            false => match select(first, second).await {
                Either::Left((Err(Failure::Lost(_)), second)) => second.await,
                Either::Right((Err(Failure::Lost(_) | Failure::NotSent(_)), first)) => first.await,
                Either::Left((result, _)) | Either::Right((result, _)) => result,
            },
        }
    }

    /// Whether a read that failed may succeed in a second try.
    fn may_fare_better(&self, error: &StoreError, outgoing: &Outgoing) -> bool {
        let is_elsewhere = error.kind == StoreErrorKind::Unavailable || self.nodes.len() > 1;
        is_elsewhere && Instant::now() < outgoing.deadline
    }

    /// Tries one node after another until a node receives the request.
    ///
    /// The nodes in the argument `others` were tried before. These nodes come last, on a new
    /// connection. The function adds the nodes to `tried`, and notifies `silent` if the node that
    /// received the request answers nothing.
    async fn once(
        self: &Arc<Self>,
        outgoing: &Outgoing,
        tried: &Mutex<Vec<usize>>,
        others: &[usize],
        silent: &Notify,
    ) -> Result<Answer, Failure> {
        let mut refusals: Vec<StoreError> = Vec::new();
        loop {
            let at = self.choose(&tried.lock(), others);
            let Some(at) = at.filter(|_| refusals.is_empty() || Instant::now() < outgoing.deadline)
            else {
                return Err(Failure::NotSent(unsent(refusals)));
            };
            tried.lock().push(at);
            let connection = match others.contains(&at) {
                true => Connection::New,
                false => Connection::Pooled,
            };
            match self.admitted(at, outgoing, connection, silent).await {
                Err(Failure::NotSent(error)) => refusals.push(error),
                Err(Failure::Lost(error)) => return Err(Failure::Lost(self.beside(error))),
                result => return result,
            }
        }
    }

    /// Returns the next node in the rotation that was not tried.
    ///
    /// Nodes that answer come first, then nodes that are left out.
    fn choose(&self, tried: &[usize], others: &[usize]) -> Option<usize> {
        let mut best = Vec::with_capacity(self.nodes.len());
        let mut best_rank = (true, true);
        for at in (0..self.nodes.len()).filter(|at| !tried.contains(at)) {
            let rank = (self.nodes[at].health.lock().is_out(), others.contains(&at));
            if best.is_empty() || rank < best_rank {
                best.clear();
                best_rank = rank;
            }
            if rank == best_rank {
                best.push(at);
            }
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        best.get(turn % best.len().max(1)).copied()
    }

    /// Sends a request to one node, with a second try.
    ///
    /// The second try follows if a refused login has changed.
    async fn admitted(
        self: &Arc<Self>,
        at: usize,
        outgoing: &Outgoing,
        connection: Connection,
        silent: &Notify,
    ) -> Result<Answer, Failure> {
        let (request, used) = self.admit(at, outgoing).await.map_err(Failure::NotSent)?;
        let answer = self.watched(at, outgoing, request, connection, silent).await?;
        let refused = self.authentication.refused(answer.status, used, outgoing.repeatable);
        match timeout_at(outgoing.deadline.into(), refused).await {
            Ok(Ok(true)) => {
                let (request, _) = self.admit(at, outgoing).await.map_err(Failure::NotSent)?;
                self.watched(at, outgoing, request, connection, silent).await
            }
            Ok(Ok(false)) | Err(_) => Ok(answer),
            Ok(Err(error)) => {
                tracing::warn!(error = %self.authentication.hide_in_error(error), "no new login");
                Ok(answer)
            }
        }
    }

    /// Returns the request to a node, with its login.
    async fn admit(
        &self,
        at: usize,
        outgoing: &Outgoing,
    ) -> Result<(reqwest::Request, Used), StoreError> {
        let mut request = outgoing.to(&self.nodes[at].url);
        let admit = self.authentication.admit(&mut request, outgoing.body.as_ref());
        let used = match timeout_at(outgoing.deadline.into(), admit).await {
            Ok(used) => used.map_err(|error| self.authentication.hide_in_error(error))?,
            Err(_) => {
                let text = "there was no login in time; nothing was sent";
                return Err(StoreError::new(StoreErrorKind::Unavailable, text));
            }
        };
        Ok((request, used))
    }

    /// Sends a request to one node, and leaves a failing node out.
    async fn watched(
        self: &Arc<Self>,
        at: usize,
        outgoing: &Outgoing,
        request: reqwest::Request,
        connection: Connection,
        silent: &Notify,
    ) -> Result<Answer, Failure> {
        let node = &self.nodes[at];
        let started = Instant::now();
        let headers = request.headers().clone();
        let carried = node.carry(request, connection, outgoing.room());
        let carried = pin!(timeout_at(outgoing.deadline.into(), carried));
        let silence = pin!(self.silence(node, started, self.patience(outgoing)));
        let result = match select(carried, silence).await {
            Either::Left((result, _)) => result,
            Either::Right(((), carried)) => {
                self.leave_out(at, Fault::Silent, "it answers nothing");
                silent.notify_one();
                match select(carried, pin!(self.found_dead(at))).await {
                    Either::Left((result, _)) => result,
                    // No answer will come, and another node can report the result of the request.
                    Either::Right(((), _)) => Ok(Err(node.no_answer(started.elapsed()))),
                }
            }
        };
        let result = result.unwrap_or_else(|_| Err(node.no_answer(started.elapsed())));
        let result = self.without_secrets(result, &headers);
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let Outgoing { method, path, items, .. } = outgoing;
        match &result {
            Ok(answer) => {
                let status = answer.status;
                tracing::debug!(node = %node.label, %method, path, items, status, took_ms, "answered");
                self.note(at, answer);
            }
            Err(failure) => {
                tracing::debug!(node = %node.label, %method, path, items, took_ms, ?failure, "no answer");
                match failure {
                    Failure::NotSent(error) => self.leave_out(at, Fault::Unable, &error.message),
                    // A redirect.
                    Failure::Lost(error) if error.kind == StoreErrorKind::Misconfigured => {
                        self.leave_out(at, Fault::Unable, &error.message);
                    }
                    Failure::Lost(_) | Failure::TooLarge(_) => {}
                }
            }
        }
        result
    }

    /// Removes secrets, except from 200 answers, which hold documents.
    fn without_secrets(
        &self,
        result: Result<Answer, Failure>,
        sent: &HeaderMap,
    ) -> Result<Answer, Failure> {
        let hide = |error| self.authentication.hide_in_error(error);
        match result {
            Ok(answer) if answer.status == 200 => Ok(answer),
            Ok(Answer { status, headers, body }) => {
                Ok(Answer { status, headers, body: self.authentication.hide(&body, sent) })
            }
            Err(Failure::NotSent(error)) => Err(Failure::NotSent(hide(error))),
            Err(Failure::Lost(error)) => Err(Failure::Lost(hide(error))),
            Err(Failure::TooLarge(error)) => Err(Failure::TooLarge(hide(error))),
        }
    }

    /// Completes when a node has answered nothing for `patience` since `from`.
    async fn silence(&self, node: &Node, from: Instant, patience: Duration) {
        let last_sign = || node.health.lock().heard().max(from);
        loop {
            let quiet_from = last_sign();
            sleep_until((quiet_from + patience).into()).await;
            if last_sign() == quiet_from {
                return;
            }
        }
    }

    /// Completes when a node fails a probe while another node serves.
    async fn found_dead(&self, at: usize) {
        let serves = |node: &Node| !node.health.lock().is_out();
        loop {
            self.nodes[at].probe_failed.notified().await;
            if !serves(&self.nodes[at]) && self.nodes.iter().any(serves) {
                return;
            }
        }
    }

    fn patience(&self, outgoing: &Outgoing) -> Duration {
        let bytes = outgoing.body.as_ref().map_or(0, Bytes::len);
        let upload = u64::try_from(bytes).unwrap_or(u64::MAX) / SLOWEST_UPLOAD;
        self.silence + Duration::from_millis(upload)
    }

    /// Updates the state of a node after an answer.
    fn note(self: &Arc<Self>, at: usize, answer: &Answer) {
        let node = &self.nodes[at];
        match classify::is_unable(answer) {
            true => {
                self.leave_out(at, Fault::Unable, &format!("it answers with {}", answer.status));
            }
            false => {
                self.budget.lock().earn();
                if node.health.lock().serve() {
                    tracing::info!(node = %node.label, "the node answers again");
                }
            }
        }
    }

    /// Leaves a node out of the rotation until a probe succeeds.
    fn leave_out(self: &Arc<Self>, at: usize, fault: Fault, why: &str) {
        let node = &self.nodes[at];
        let Some(pause) = node.health.lock().leave_out(fault) else { return };
        // A single node has no alternative, and each caller gets the error.
        match self.nodes.len() {
            1 => tracing::debug!(node = %node.label, why, "the node does not serve"),
            _ => tracing::warn!(node = %node.label, why, "the node is left out until it answers"),
        }
        tokio::spawn(self.clone().probe(at, pause));
    }

    /// Probes a node until it answers on a new connection. Ends with the store's thread.
    async fn probe(self: Arc<Self>, at: usize, pause: Duration) {
        let node = &self.nodes[at];
        let mut pause = Some(pause);
        while let Some(time) = pause {
            sleep(time).await;
            let request = Request {
                method: Method::GET,
                path: "/",
                query: &[],
                body: None,
                items: 0,
                room: ADMIN_ROOM,
                class: RequestClass::Read,
            };
            let patience = self.silence.max(Duration::from_secs(1));
            let outgoing = Outgoing::new(&request, patience);
            let alive = match self.admit(at, &outgoing).await {
                Ok((request, _)) => {
                    let carried = node.carry(request, Connection::New, outgoing.room());
                    match timeout_at(outgoing.deadline.into(), carried).await {
                        Ok(Ok(answer)) => !classify::is_unable(&answer),
                        Ok(Err(failure)) => matches!(failure, Failure::TooLarge(_)),
                        Err(_) => false,
                    }
                }
                Err(_) => false,
            };
            pause = match alive {
                true => {
                    // The connections may be the cause of the silence: a balancer may have
                    // forgotten them.
                    node.renew_connections();
                    if node.health.lock().probe_succeeded() {
                        tracing::info!(node = %node.label, "the node answers again");
                    }
                    None
                }
                false => {
                    let pause = node.health.lock().probe_failed();
                    node.probe_failed.notify_waiters();
                    pause
                }
            };
        }
    }

    /// Adds the other nodes' state to the error.
    ///
    /// The state is added if no node serves.
    fn beside(&self, mut error: StoreError) -> StoreError {
        if self.nodes.len() > 1 && self.nodes.iter().all(|node| node.health.lock().is_out()) {
            let labels = self.labels().collect::<Vec<_>>().join(", ");
            error.message.push_str(&format!("; none of the nodes answers now: {labels}"));
        }
        error
    }
}

/// Merges the errors of all nodes that were asked.
///
/// An unreachable node may return. So the merged error allows a retry, even if another node can
/// never work.
fn unsent(refusals: Vec<StoreError>) -> StoreError {
    let mut kind = StoreErrorKind::Misconfigured;
    if refusals.is_empty() || refusals.iter().any(|error| error.kind == StoreErrorKind::Unavailable)
    {
        kind = StoreErrorKind::Unavailable;
    }
    let texts: Vec<String> = refusals.into_iter().map(|error| error.message).collect();
    match texts.is_empty() {
        true => StoreError::new(kind, "no node was asked in time; nothing was sent"),
        false => StoreError::new(kind, texts.join("; ")),
    }
}
