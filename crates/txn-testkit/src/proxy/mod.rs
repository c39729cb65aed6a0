//! A proxy that does to requests what networks do.
//!
//! [`Proxy`] listens on 127.0.0.1 and forwards HTTP/1.1 requests to one server. The proxy loses
//! answers of requests that were carried out, cuts connections, delays, and repeats a request at
//! once or seconds later. The proxy also refuses with 429 or 503, and answers writes that were
//! carried out with a refusal. An outage makes the server unreachable for some time.
//!
//! - A [`Schedule`] chooses faults at random, with the odds of each fault for each [`Route`]. With
//!   the same seed, request number *n* has the same fault in every run.
//! - [`Proxy::inject`] arms a fault for the next request that matches, and [`Proxy::hold`] holds
//!   that request until the test releases it.
//! - [`Manners`] apply to every request: a limit of bodies, a hidden field, forgotten connections,
//!   a path prefix.
//! - [`Proxy::counts`] returns the faults that happened.
//!
//! A received request goes to the server even if the client is gone in the meantime. Late writes
//! happen in this way.
//!
//! ```no_run
//! use txn_testkit::proxy::{Fault, Matching, Odds, Proxy, Route, Schedule};
//!
//! # async fn demo() -> std::io::Result<()> {
//! let proxy = Proxy::start("http://127.0.0.1:9200").await?;
//! // Give `proxy.url()` to a client. Faults at random:
//! proxy.set_schedule(Schedule::new(7, Odds::rough()));
//! // The next bulk with a commit is carried out, and its answer is lost:
//! let commit = Matching::route(Route::Bulk).with_body(r#""state":"committed""#);
//! proxy.inject(commit, Fault::LoseAnswer);
//! // At the end:
//! proxy.clear();
//! proxy.settle().await;
//! println!("{:?}", proxy.counts());
//! proxy.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod counts;
mod exchange;
mod fault;
mod hold;
mod items;
mod manners;
mod matching;
mod schedule;
mod serve;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use counts::Counts;
pub use fault::{Fault, FaultKind, Outage, Refusal};
pub use hold::{Hold, Point};
pub use manners::Manners;
pub use matching::{Matching, Route};
pub use schedule::{Odds, Schedule};

use counts::Tally;
use exchange::{Upstream, upstream};
use hold::Gate;
use matching::Facts;

/// The interval between checks whether an outage has ended.
const STEP: Duration = Duration::from_millis(20);

/// A proxy in front of one server. See the [module](self).
///
/// Dropping the proxy stops it like [`shutdown`](Self::shutdown), without waiting.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

/// The state that the tasks of a proxy share.
pub(crate) struct Shared {
    /// Scheme, host and port of the server, without a final slash.
    target: String,
    client: Upstream,
    plan: Mutex<Plan>,
    manners: Mutex<Manners>,
    numbers: AtomicU64,
    tally: Tally,
    /// The listener and the connections.
    connections: TaskTracker,
    /// Requests to the server, including late repetitions.
    exchanges: TaskTracker,
    stop: CancellationToken,
}

#[derive(Default)]
struct Plan {
    schedule: Option<Schedule>,
    paused: bool,
    rules: Vec<Rule>,
    outage: Option<Ongoing>,
}

/// A running outage.
#[derive(Clone, Copy)]
pub(crate) struct Ongoing {
    outage: Outage,
    /// When the outage ends; `None` for an explicit end.
    until: Option<Instant>,
}

/// The action for the next request that matches.
struct Rule {
    matching: Matching,
    action: Action,
}

/// The action for one request.
#[derive(Clone)]
pub(crate) enum Action {
    Pass,
    /// A fault, the outage that follows, and the filter of its rule.
    Fault(Fault, Option<Ongoing>, Option<Matching>),
    Hold(hold::Ticket),
    /// The server is unreachable.
    Away(Outage),
}

impl Proxy {
    /// Starts a proxy without faults in front of a server.
    ///
    /// `target` is an address such as `http://127.0.0.1:9200`.
    ///
    /// # Errors
    /// If the proxy cannot listen.
    pub async fn start(target: &str) -> io::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: target.trim_end_matches('/').to_owned(),
            client: upstream(),
            plan: Mutex::default(),
            manners: Mutex::default(),
            numbers: AtomicU64::new(0),
            tally: Tally::default(),
            connections: TaskTracker::new(),
            exchanges: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        // A closed tracker can be waited for, and still accepts tasks.
        shared.connections.close();
        shared.exchanges.close();
        shared.connections.spawn(serve::listen(shared.clone(), listener));
        Ok(Self { shared, address })
    }

    /// Returns the address of the proxy, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the schedule of faults from now on.
    pub fn set_schedule(&self, schedule: Schedule) {
        self.shared.plan.lock().schedule = Some(schedule);
    }

    /// Pauses the schedule, or continues it. Rules and holds stay active.
    pub fn pause(&self, paused: bool) {
        self.shared.plan.lock().paused = paused;
    }

    /// Sets the manners from now on. [`clear`](Self::clear) leaves them unchanged.
    pub fn set_manners(&self, manners: Manners) {
        *self.shared.manners.lock() = manners;
    }

    /// Removes the schedule, all rules and the outage.
    ///
    /// Requests under way keep their faults.
    pub fn clear(&self) {
        *self.shared.plan.lock() = Plan::default();
    }

    /// Arms a fault for the next request that matches.
    ///
    /// Rules apply in the order of their creation, before the schedule, and once each. A refusal is
    /// used up by a write that succeeded at the server.
    pub fn inject(&self, matching: Matching, fault: Fault) {
        self.shared.arm(matching, Action::Fault(fault, None, None));
    }

    /// As [`inject`](Self::inject), with an outage after the fault.
    ///
    /// The outage lasts until [`end_outage`](Self::end_outage).
    pub fn inject_then(&self, matching: Matching, fault: Fault, outage: Outage) {
        let behind = Ongoing { outage, until: None };
        self.shared.arm(matching, Action::Fault(fault, Some(behind), None));
    }

    /// Makes the server unreachable until [`end_outage`](Self::end_outage).
    ///
    /// Requests under way arrive.
    pub fn begin_outage(&self, outage: Outage) {
        self.shared.begins(Ongoing { outage, until: None });
    }

    /// Makes the server reachable again.
    pub fn end_outage(&self) {
        self.shared.plan.lock().outage = None;
    }

    /// Whether an outage is under way.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.shared.plan.lock().away().is_some()
    }

    /// Holds the next request that matches, until the test decides.
    #[must_use]
    pub fn hold(&self, matching: Matching, point: Point) -> Hold {
        let gate = Arc::new(Gate::default());
        self.shared.arm(matching, Action::Hold(gate.ticket(point)));
        Hold::new(gate)
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.tally.counts()
    }

    /// Waits until no request is on its way to the server.
    ///
    /// Every late repetition has arrived then. The call also waits for held requests.
    pub async fn settle(&self) {
        self.shared.exchanges.wait().await;
    }

    /// Cuts all connections, drops unsent requests, and waits for all tasks.
    pub async fn shutdown(self) {
        self.shared.stop.cancel();
        self.shared.connections.wait().await;
        self.shared.exchanges.wait().await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("address", &self.address)
            .field("target", &self.shared.target)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Plan {
    /// Returns the current outage.
    fn away(&mut self) -> Option<Outage> {
        let over = |ongoing: &mut Ongoing| ongoing.until.is_some_and(|end| end <= Instant::now());
        self.outage.take_if(over);
        self.outage.map(|ongoing| ongoing.outage)
    }
}

impl Shared {
    fn manners(&self) -> Manners {
        self.manners.lock().clone()
    }

    /// Returns after this outage has ended.
    async fn outage_ends(&self, outage: Outage) {
        while self.plan.lock().away() == Some(outage) {
            tokio::time::sleep(STEP).await;
        }
    }

    fn begins(&self, ongoing: Ongoing) {
        self.plan.lock().outage = Some(ongoing);
    }

    fn arm(&self, matching: Matching, action: Action) {
        self.plan.lock().rules.push(Rule { matching, action });
    }

    /// Returns the action of the first matching rule, or of the schedule.
    fn decide(&self, facts: &Facts<'_>) -> Action {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut plan = self.plan.lock();
        if let Some(outage) = plan.away() {
            return Action::Away(outage);
        }
        plan.rules.retain(|rule| rule.action.is_wanted());
        if let Some(at) = plan.rules.iter().position(|rule| rule.matching.fits(facts)) {
            let Rule { matching, action } = plan.rules.remove(at);
            return match action {
                Action::Fault(fault, behind, _) => Action::Fault(fault, behind, Some(matching)),
                action => action,
            };
        }
        match &plan.schedule {
            Some(schedule) if !plan.paused => {
                schedule.choose(number, facts.route).map_or(Action::Pass, |chosen| {
                    let behind = chosen.outage.map(|(outage, lasts)| Ongoing {
                        outage,
                        until: Some(Instant::now() + lasts),
                    });
                    Action::Fault(chosen.fault, behind, None)
                })
            }
            _ => Action::Pass,
        }
    }
}

impl Action {
    /// Whether a test still waits for the action.
    fn is_wanted(&self) -> bool {
        match self {
            Self::Hold(ticket) => ticket.is_wanted(),
            Self::Pass | Self::Fault(..) | Self::Away(_) => true,
        }
    }
}
