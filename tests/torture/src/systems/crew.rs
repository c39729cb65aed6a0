//! Workers that are killed and paused at random.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use txn_testkit::servers::Process;

use super::{Job, Plan};

/// The life of a worker, in milliseconds.
///
/// Mostly longer than other workers need to notice a death and to take over.
const LIFE: std::ops::Range<u64> = 2_000..14_000;

/// The kills and pauses, and the output of the workers.
#[derive(Debug, Default)]
pub(crate) struct Course {
    kills: AtomicU64,
    pauses: AtomicU64,
    changes: AtomicU64,
    said: Mutex<Vec<String>>,
    /// Violations.
    odd: Mutex<Vec<String>>,
}

impl Course {
    pub(crate) fn counted(&self) -> Vec<(String, u64)> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        vec![
            ("workers killed".to_owned(), of(&self.kills)),
            ("  and replaced by the other version".to_owned(), of(&self.changes)),
            ("workers paused beyond their lease".to_owned(), of(&self.pauses)),
        ]
    }

    /// Counts a kill.
    pub(crate) fn note_kill(&self) {
        self.kills.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the lines of the workers.
    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().clone()
    }

    /// Returns the violations: workers that ended on their own.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.odd.lock().clone()
    }
}

/// Workers that run until the end of the soak.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) course: Arc<Course>,
    stop: CancellationToken,
    members: JoinSet<Result<(), String>>,
}

impl Crew {
    /// Starts the workers of a plan on a domain.
    ///
    /// A task per worker kills and pauses it.
    pub(crate) fn start(plan: &Plan, domain: &str) -> Self {
        let job = plan.job(domain, String::new());
        let (course, stop, mut members) =
            (Arc::new(Course::default()), CancellationToken::new(), JoinSet::new());
        for number in 0..plan.workers {
            let (plan, job, course, stop) =
                (plan.clone(), job.clone(), course.clone(), stop.clone());
            members.spawn(async move { member(number, &plan, &job, &course, &stop).await });
        }
        Self { course, stop, members }
    }

    /// Kills all workers, and reads their remaining output.
    ///
    /// # Errors
    /// If a worker could not be started, killed or paused.
    pub(crate) async fn end(mut self) -> Result<Arc<Course>, String> {
        self.stop.cancel();
        while let Some(ended) = self.members.join_next().await {
            ended.map_err(|error| error.to_string())??;
        }
        Ok(self.course)
    }
}

/// Runs one worker after the other, under the number of a member.
async fn member(
    number: usize,
    plan: &Plan,
    job: &Job,
    course: &Arc<Course>,
    stop: &CancellationToken,
) -> Result<(), String> {
    let began = Instant::now();
    while !stop.is_cancelled() {
        let after = began.elapsed();
        let changes_at = plan.until_change(after).map(|left| after + left);
        let mut worker = Worker::start(plan.program(number, after), job, course)?;
        loop {
            let left = changes_at.map_or(Duration::MAX, |at| at.saturating_sub(began.elapsed()));
            wait(Duration::from_millis(fastrand::u64(LIFE)).min(left), stop).await;
            if let Some(status) = worker.child.try_wait().map_err(|error| error.to_string())? {
                course.odd.lock().push(format!("a worker ended by itself: {status}"));
                break;
            }
            let changes = changes_at.is_some_and(|at| began.elapsed() >= at);
            if changes || stop.is_cancelled() || fastrand::bool() {
                worker.kill().await?;
                course.note_kill();
                course.changes.fetch_add(u64::from(changes), Ordering::Relaxed);
                break;
            }
            if worker.pause().await? {
                // Longer than its lease, and than other workers need to notice.
                wait(plan.lease.mul_f64(1.2 + fastrand::f64()), stop).await;
                worker.process.resume().map_err(|error| error.to_string())?;
                course.pauses.fetch_add(1, Ordering::Relaxed);
            }
        }
        worker.said.await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

async fn wait(span: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(span) => {}
    }
}

/// A process of this program.
pub(crate) struct Worker {
    child: Child,
    process: Process,
    said: JoinHandle<()>,
}

impl Worker {
    pub(crate) fn start(program: &Path, job: &Job, course: &Arc<Course>) -> Result<Self, String> {
        let job = serde_json::to_string(job).map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(["--worker", &job])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("no worker: {error}"))?;
        let process = child.id().and_then(Process::of).ok_or("a worker is gone at once")?;
        let lines = child.stdout.take().map(|pipe| BufReader::new(pipe).lines());
        let course = course.clone();
        let said = tokio::spawn(async move {
            let Some(mut lines) = lines else { return };
            // A line that a kill cut off does not count.
            while let Ok(Some(line)) = lines.next_line().await {
                course.said.lock().push(line);
            }
        });
        Ok(Self { child, process, said })
    }

    /// The id of the process, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) async fn kill(&mut self) -> Result<(), String> {
        self.child.kill().await.map_err(|error| error.to_string())
    }

    /// Pauses the worker; `false` if it was gone.
    async fn pause(&self) -> Result<bool, String> {
        let process = self.process.clone();
        let paused = tokio::task::spawn_blocking(move || process.pause()).await;
        paused.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}
