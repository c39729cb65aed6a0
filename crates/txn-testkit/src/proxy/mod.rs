//! A proxy that does to requests what networks do.
//!
//! [`Proxy`] listens on 127.0.0.1 and passes HTTP/1.1 requests on to one server. On the way it loses answers
//! of requests that were carried out, cuts connections, delays, repeats a request at once or seconds later,
//! refuses with 429 or 503, and answers writes that were carried out with a refusal. An outage keeps everything away
//! from the server for a while.
//!
//! - A [`Schedule`] decides by chance, with odds of each fault for each [`Route`]. It is seeded: request number
//!   *n* meets the same fault in every run with the same seed.
//! - [`Proxy::inject`] arms a fault for the next request that matches, and [`Proxy::hold`] holds that request up
//!   until the test lets it go.
//! - [`Manners`] hold for every request: a limit of bodies, a hidden field, connections that are forgotten, a path in front.
//! - [`Proxy::counts`] tells which faults really happened.
//!
//! What was received goes on to the server even when the client is gone meanwhile: that is how late writes
//! come about.
//!
//! ```no_run
//! use txn_testkit::proxy::{Fault, Matching, Odds, Proxy, Route, Schedule};
//!
//! # async fn demo() -> std::io::Result<()> {
//! let proxy = Proxy::start("http://127.0.0.1:9200").await?;
//! // A client is given `proxy.url()`. By chance:
//! proxy.set_schedule(Schedule::new(7, Odds::rough()));
//! // And the next bulk that commits something is carried out, and its answer lost:
//! let commit = Matching::route(Route::Bulk).with_body(r#""state":"committed""#);
//! proxy.inject(commit, Fault::LoseAnswer);
//! // In the end:
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

/// How often it is looked whether an outage has ended.
const STEP: Duration = Duration::from_millis(20);

/// A proxy in front of one server. See the [module](self).
///
/// Dropped, it stops as [`shutdown`](Self::shutdown) does, without waiting.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

/// What the tasks of a proxy share.
pub(crate) struct Shared {
    /// Scheme, host and port of the server, without a slash at the end.
    target: String,
    client: Upstream,
    plan: Mutex<Plan>,
    manners: Mutex<Manners>,
    numbers: AtomicU64,
    tally: Tally,
    /// The listener and the connections.
    connections: TaskTracker,
    /// What is on its way to the server, with late repetitions.
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

/// An outage that has begun.
#[derive(Clone, Copy)]
pub(crate) struct Ongoing {
    outage: Outage,
    /// When it ends by itself.
    until: Option<Instant>,
}

/// What is to happen to the next request that matches.
struct Rule {
    matching: Matching,
    action: Action,
}

/// What happens to one request.
#[derive(Clone)]
pub(crate) enum Action {
    Pass,
    /// A fault, and the outage behind it.
    Fault(Fault, Option<Ongoing>),
    Hold(hold::Ticket),
    /// The server is out of reach.
    Away(Outage),
}

impl Proxy {
    /// Starts a proxy, without faults, in front of the server at an address such as `http://127.0.0.1:9200`.
    ///
    /// # Errors
    /// If it cannot listen.
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
        // A closed tracker can be waited for, and still takes tasks.
        shared.connections.close();
        shared.exchanges.close();
        shared.connections.spawn(serve::listen(shared.clone(), listener));
        Ok(Self { shared, address })
    }

    /// The address of the proxy, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on faults happen by this schedule.
    pub fn set_schedule(&self, schedule: Schedule) {
        self.shared.plan.lock().schedule = Some(schedule);
    }

    /// Pauses the schedule, or lets it go on. Rules and holds count in either case.
    pub fn pause(&self, paused: bool) {
        self.shared.plan.lock().paused = paused;
    }

    /// From now on the proxy has these manners. [`clear`](Self::clear) leaves them.
    pub fn set_manners(&self, manners: Manners) {
        *self.shared.manners.lock() = manners;
    }

    /// From now on nothing goes wrong any more: no schedule, no rules, no outage. What is on its way meets what it was meant to.
    pub fn clear(&self) {
        *self.shared.plan.lock() = Plan::default();
    }

    /// The next request that matches meets this fault. Rules are asked in the order in which they came, before the
    /// schedule, and each counts once.
    pub fn inject(&self, matching: Matching, fault: Fault) {
        self.arm(matching, Action::Fault(fault, None));
    }

    /// As [`inject`](Self::inject), and once the fault has happened everything is out of reach, until
    /// [`end_outage`](Self::end_outage).
    pub fn inject_then(&self, matching: Matching, fault: Fault, outage: Outage) {
        let behind = Ongoing { outage, until: None };
        self.arm(matching, Action::Fault(fault, Some(behind)));
    }

    /// Everything is out of reach, until [`end_outage`](Self::end_outage). What is on its way arrives.
    pub fn begin_outage(&self, outage: Outage) {
        self.shared.begins(Ongoing { outage, until: None });
    }

    /// The server is within reach again.
    pub fn end_outage(&self) {
        self.shared.plan.lock().outage = None;
    }

    /// Whether an outage is under way.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.shared.plan.lock().away().is_some()
    }

    /// The next request that matches is held up at a point of its way, until the test decides.
    #[must_use]
    pub fn hold(&self, matching: Matching, point: Point) -> Hold {
        let gate = Arc::new(Gate::default());
        self.arm(matching, Action::Hold(gate.ticket(point)));
        Hold::new(gate)
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.tally.counts()
    }

    /// Returns once nothing is on its way to the server: every late repetition has arrived. Requests that are held
    /// up are waited for, too.
    pub async fn settle(&self) {
        self.shared.exchanges.wait().await;
    }

    /// Cuts all connections, forgets what has not been sent yet, and returns when nothing of it runs any more.
    pub async fn shutdown(self) {
        self.shared.stop.cancel();
        self.shared.connections.wait().await;
        self.shared.exchanges.wait().await;
    }

    fn arm(&self, matching: Matching, action: Action) {
        self.shared.plan.lock().rules.push(Rule { matching, action });
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
    /// How the server is out of reach now.
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

    /// Returns once the server is not out of reach in this way any more.
    async fn outage_ends(&self, outage: Outage) {
        while self.plan.lock().away() == Some(outage) {
            tokio::time::sleep(STEP).await;
        }
    }

    fn begins(&self, ongoing: Ongoing) {
        self.plan.lock().outage = Some(ongoing);
    }

    /// What is to happen to a request: by the first rule that matches, or else by the schedule.
    fn decide(&self, facts: &Facts<'_>) -> Action {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut plan = self.plan.lock();
        if let Some(outage) = plan.away() {
            return Action::Away(outage);
        }
        plan.rules.retain(|rule| rule.action.is_wanted());
        if let Some(at) = plan.rules.iter().position(|rule| rule.matching.fits(facts)) {
            return plan.rules.remove(at).action;
        }
        match &plan.schedule {
            Some(schedule) if !plan.paused => {
                schedule.choose(number, facts.route).map_or(Action::Pass, |chosen| {
                    let behind = chosen.outage.map(|(outage, lasts)| Ongoing {
                        outage,
                        until: Some(Instant::now() + lasts),
                    });
                    Action::Fault(chosen.fault, behind)
                })
            }
            _ => Action::Pass,
        }
    }
}

impl Action {
    /// Whether somebody still waits for it.
    fn is_wanted(&self) -> bool {
        match self {
            Self::Hold(ticket) => ticket.is_wanted(),
            Self::Pass | Self::Fault(..) | Self::Away(_) => true,
        }
    }
}
