//! A simulated process: clocks, randomness, and access to the store.
//!
//! The engine awaits only answers of the store and times, and both pass through this module. So a
//! process can be paused and killed at every step. A killed process receives no further answer. A
//! paused process receives the answer when it wakes. So a request may be carried out although its
//! sender never learns of that.

use std::any::Any;
use std::future::pending;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use txn_core::clock::{Clock, Entropy};
use txn_store::{Key, Layer, Outcome, Read, Store, StoreError, Write};

/// Noon of a day in the simulated environment.
pub const EPOCH: Duration = Duration::from_secs(1_795_262_400);

#[derive(Debug)]
struct State {
    dice: fastrand::Rng,
    /// Words that no other process has. No other decision depends on them.
    words: fastrand::Rng,
    /// Steps until the process is killed, if it will be.
    dies_in: Option<u64>,
    /// Steps until the process is paused, and the duration of the pause.
    pauses_in: Option<(u64, Duration)>,
    paused_until: Option<Instant>,
    killed: bool,
    /// The probability that an access to the store panics.
    panics: f64,
    /// How often an access to the store panicked.
    panicked: u64,
    /// The steps of the present span.
    steps: u64,
    /// The start of the present span.
    counted_since: Instant,
}

/// The maximum number of steps of a process in a [`SPAN`].
///
/// Beyond this number the process loops.
///
/// A process that waits for a holder polls again and again, and in some runs the wait is long.
const STEPS: u64 = 100_000;

const SPAN: Duration = Duration::from_secs(300);

/// A panic that the simulation plans. The panic hook does not report it.
#[derive(Debug)]
pub struct Planned;

/// Panics as a part of the simulation.
pub fn panic_as_planned() -> ! {
    std::panic::resume_unwind(Box::new(Planned))
}

/// Whether the simulation planned a panic.
///
/// If the store panics in a shared request, one caller receives this panic, and each other caller a
/// message of the engine.
#[must_use]
pub fn is_planned(panic: &(dyn Any + Send)) -> bool {
    let shared = "the store panicked in a shared request";
    panic.is::<Planned>() || panic.downcast_ref::<&str>().is_some_and(|words| *words == shared)
}

/// The recorded part of a run.
///
/// A run has events, store operations and actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// No event.
    Nothing,
    /// A digest, which differs if any line or its time differs.
    Digest,
    /// All lines.
    Lines,
}

/// The log of a run.
#[derive(Debug)]
pub struct Log {
    origin: Instant,
    recording: Recording,
    kept: Mutex<(DefaultHasher, Vec<String>)>,
}

impl Log {
    /// A log that keeps this much.
    #[must_use]
    pub fn new(recording: Recording) -> Self {
        Self { origin: Instant::now(), recording, kept: Mutex::default() }
    }

    /// Adds a line, with the time.
    pub fn line(&self, line: impl FnOnce() -> String) {
        let now = || self.origin.elapsed();
        match self.recording {
            Recording::Nothing => {}
            Recording::Digest => (now(), line()).hash(&mut self.kept.lock().0),
            Recording::Lines => {
                let line = format!("{:>9.3} {}", now().as_secs_f64(), line());
                self.kept.lock().1.push(line);
            }
        }
    }

    /// The digest of all lines so far; equal without [`Recording::Digest`].
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.kept.lock().0.finish()
    }

    /// All lines.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.kept.lock().1)
    }
}

/// A simulated process.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: Arc<Log>,
    store: Arc<dyn Store>,
    /// The start of the run.
    origin: Instant,
    /// The speed of the process's clocks, relative to true time.
    speed: f64,
    /// The offset of the wall clock in milliseconds.
    off: AtomicI64,
    state: Mutex<State>,
    /// Wakes the task that waits for the end of the process.
    death: Notify,
}

impl Process {
    /// A process that accesses `store`, with clocks of this speed and offset.
    ///
    /// `off` is in milliseconds.
    #[must_use]
    pub fn new(
        name: String,
        store: Arc<dyn Store>,
        log: Arc<Log>,
        seed: u64,
        speed: f64,
        off: i64,
    ) -> Arc<Self> {
        let state = State {
            dice: fastrand::Rng::with_seed(seed),
            words: fastrand::Rng::with_seed(!seed),
            dies_in: None,
            pauses_in: None,
            paused_until: None,
            killed: false,
            panics: 0.0,
            panicked: 0,
            steps: 0,
            counted_since: Instant::now(),
        };
        let (origin, off, state) = (log.origin, AtomicI64::new(off), Mutex::new(state));
        let death = Notify::new();
        Arc::new(Self { name, log, store, origin, speed, off, state, death })
    }

    /// The name of the process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a line to the log of the run.
    pub fn log(&self, line: impl FnOnce() -> String) {
        self.log.line(|| format!("{} {}", self.name, line()));
    }

    /// Kills the process after this number of steps.
    pub fn kill_after(&self, steps: u64) {
        self.state.lock().dies_in = Some(steps);
    }

    /// Pauses the process after this number of steps, for this time.
    pub fn pause_after(&self, steps: u64, span: Duration) {
        self.state.lock().pauses_in = Some((steps, span));
    }

    /// Sets the probability that an access to the store panics.
    pub fn panic_at(&self, odds: f64) {
        self.state.lock().panics = odds;
    }

    /// How often an access to the store panicked.
    #[must_use]
    pub fn panicked(&self) -> u64 {
        self.state.lock().panicked
    }

    fn perhaps_panic(&self) {
        let panics = {
            let mut state = self.state.lock();
            let panics = state.panics > 0.0 && state.dice.f64() < state.panics;
            state.panicked += u64::from(panics);
            panics
        };
        if panics {
            self.log(|| "panics in its store".to_owned());
            panic_as_planned();
        }
    }

    /// Moves the wall clock.
    pub fn jump(&self, millis: i64) {
        self.off.fetch_add(millis, Ordering::Relaxed);
    }

    /// The offset of the wall clock in milliseconds.
    #[must_use]
    pub fn off(&self) -> i64 {
        self.off.load(Ordering::Relaxed)
    }

    /// Whether the process was killed.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.state.lock().killed
    }

    /// Returns after the process was killed. For one caller at a time.
    pub async fn died(&self) {
        while !self.is_killed() {
            self.death.notified().await;
        }
    }

    /// Whether the process sent requests without an end, and was stopped.
    #[must_use]
    pub fn is_circling(&self) -> bool {
        self.state.lock().steps >= STEPS
    }

    /// Ends all faults of the process. A paused process wakes; a dead one stays dead.
    pub fn leave_alone(&self) {
        let mut state = self.state.lock();
        (state.dies_in, state.pauses_in, state.paused_until) = (None, None, None);
        state.panics = 0.0;
    }

    /// A step, at which the process may pause or die. Cancel safe.
    pub async fn step(&self) {
        self.count();
        loop {
            let (killed, until) = {
                let state = self.state.lock();
                (state.killed || state.steps >= STEPS, state.paused_until)
            };
            if killed {
                return pending().await;
            }
            match until.filter(|until| *until > Instant::now()) {
                // Checked now and then, because `leave_alone` ends a pause early.
                Some(until) => {
                    let soon = Instant::now() + Duration::from_millis(500);
                    tokio::time::sleep_until(until.min(soon)).await;
                }
                None => return,
            }
        }
    }

    fn count(&self) {
        let mut state = self.state.lock();
        if state.steps < STEPS && state.counted_since.elapsed() >= SPAN {
            (state.steps, state.counted_since) = (0, Instant::now());
        }
        state.steps += 1;
        if let Some(left) = &mut state.dies_in {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.killed = true;
                self.death.notify_one();
            }
        }
        if let Some((left, span)) = &mut state.pauses_in {
            *left = left.saturating_sub(1);
            if *left == 0 {
                let until = Instant::now() + *span;
                (state.pauses_in, state.paused_until) = (None, Some(until));
            }
        }
    }

    async fn ask<T>(&self, request: impl Future<Output = T>) -> T {
        self.step().await;
        let answer = request.await;
        self.step().await;
        answer
    }
}

/// A [`Process`] as the engine's clock.
#[derive(Debug)]
pub struct ClockOf(pub Arc<Process>);

#[async_trait]
impl Clock for ClockOf {
    fn wall(&self) -> Duration {
        let off = self.0.off();
        let span = Duration::from_millis(off.unsigned_abs());
        let now = EPOCH + self.monotonic();
        if off < 0 { now - span } else { now + span }
    }

    fn monotonic(&self) -> Duration {
        self.0.origin.elapsed().mul_f64(self.0.speed)
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration.div_f64(self.0.speed)).await;
        self.0.step().await;
    }
}

/// A [`Process`] as the engine's randomness.
#[derive(Debug)]
pub struct EntropyOf(pub Arc<Process>);

impl Entropy for EntropyOf {
    fn next_u64(&self) -> u64 {
        self.0.state.lock().dice.u64(..)
    }

    fn word(&self) -> u64 {
        self.0.state.lock().words.u64(..)
    }
}

/// A [`Process`] as the engine's store.
#[derive(Debug)]
pub struct StoreOf(pub Arc<Process>);

#[async_trait]
impl Layer for StoreOf {
    fn inner(&self) -> &dyn Store {
        &*self.0.store
    }

    async fn around<V: Send>(
        &self,
        call: impl Future<Output = Result<V, StoreError>> + Send,
    ) -> Result<V, StoreError> {
        self.0.ask(call).await
    }

    async fn get_many(&self, keys: &[Key]) -> Vec<Read> {
        self.0.ask(self.0.store.get_many(keys)).await
    }

    async fn read_primary(&self, keys: &[Key]) -> Vec<Read> {
        self.0.perhaps_panic();
        self.0.ask(self.0.store.read_primary(keys)).await
    }

    async fn write_many(&self, writes: &[Write]) -> Vec<Outcome> {
        let outcomes = self.0.ask(self.0.store.write_many(writes)).await;
        for (at, write) in writes.iter().enumerate() {
            self.0.log.line(|| {
                let (op, outcome) = (&write.op, outcomes.get(at));
                format!("{} {} {op:?} -> {outcome:?}", self.0.name, write.key)
            });
        }
        self.0.perhaps_panic();
        outcomes
    }
}
