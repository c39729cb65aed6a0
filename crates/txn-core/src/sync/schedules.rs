//! The mutex and the tasks of `shuttle`, and the runs of a test in many schedules.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use shuttle::future::AbortHandle;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::MutexGuard;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinError;
use tokio_util::task::TaskTracker;

use crate::clock::{Clock, Entropy};

/// A mutex whose `lock` is a point of the schedule.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task of the schedule, unless its runtime had ended. A dropped handle detaches the task.
pub(crate) struct JoinHandle<T>(Option<shuttle::future::JoinHandle<T>>);

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Only tokio can create its error. No test waits for a task of an ended runtime.
        let Some(task) = &mut self.0 else { return Poll::Pending };
        match ready!(Pin::new(task).poll(cx)) {
            Ok(value) => Poll::Ready(Ok(value)),
            Err(_) => Poll::Pending,
        }
    }
}

/// The runtime of the tasks of one run.
enum Runtime {
    Runs(Vec<AbortHandle>),
    Ended,
}

thread_local! {
    static RUNTIME: RefCell<Runtime> = const { RefCell::new(Runtime::Ended) };
}

/// Spawns a task of the schedule. An ended runtime drops the task, as tokio does.
pub(crate) fn spawn_on<T: Send + 'static>(
    tasks: &TaskTracker,
    task: impl Future<Output = T> + Send + 'static,
    _runtime: &Handle,
) -> JoinHandle<T> {
    if RUNTIME.with_borrow(|runtime| matches!(runtime, Runtime::Ended)) {
        return JoinHandle(None);
    }
    let spawned = shuttle::future::spawn(tasks.track_future(task));
    let runs = RUNTIME.with_borrow_mut(|runtime| match runtime {
        Runtime::Runs(tasks) => {
            tasks.push(spawned.abort_handle());
            true
        }
        Runtime::Ended => false,
    });
    if !runs {
        spawned.abort();
    }
    JoinHandle(Some(spawned))
}

/// Ends the runtime: drops its tasks, each at its next point of the schedule.
pub(crate) fn end_runtime() {
    if let Runtime::Runs(tasks) = RUNTIME.replace(Runtime::Ended) {
        tasks.iter().for_each(AbortHandle::abort);
    }
}

/// A clock that stands still. A short sleep ends at any point, and a long one never.
///
/// So no timer hides a lost wake-up: a waiter that no task wakes is a deadlock.
#[derive(Debug)]
pub(crate) struct StoppedClock;

/// A sleep of this length, or of a longer one, never ends.
const LONG: Duration = Duration::from_millis(100);

#[async_trait]
impl Clock for StoppedClock {
    fn wall(&self) -> Duration {
        Duration::from_secs(1_800_000_000)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn sleep(&self, duration: Duration) {
        match duration < LONG {
            true => shuttle::future::yield_now().await,
            false => std::future::pending().await,
        }
    }
}

/// The same numbers in each run.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Entropy for Counter {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The number of schedules of each kind, if `TXN_SCHEDULES` does not set one.
const SCHEDULES: usize = 1_000;

/// The number of changes of priority in a schedule.
const CHANGES: usize = 3;

/// Runs a test in many schedules: the next task is random, or has the highest random priority.
///
/// A task that never ends fails the test. The output has the failed schedule, for
/// [`shuttle::replay`].
pub(crate) fn check(test: fn()) {
    let number = std::env::var("TXN_SCHEDULES").ok();
    let number = number.map_or(SCHEDULES, |number| number.parse().expect("a number"));
    let seed = std::env::var("TXN_SCHEDULES_SEED").ok();
    let seed = seed.map_or(0, |seed| seed.parse().expect("a number"));
    run(RandomScheduler::new_from_seed(seed, number), test);
    run(PctScheduler::new_from_seed(seed, CHANGES, number), test);
}

fn run(scheduler: impl Scheduler + 'static, test: fn()) {
    // The engine asks for the runtime of its caller. This one runs no task.
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let _entered = runtime.enter();
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    let runner = shuttle::Runner::new(scheduler, config);
    runner.run(move || {
        RUNTIME.set(Runtime::Runs(Vec::new()));
        test();
    });
}
