//! The writer thread: a bounded queue, and groups with one commit each.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use redb::{CommitError, Database, Durability};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use txn_store::{Outcome, StoreError, StoreErrorKind, Write};

use crate::apply::{Administered, Changes, Command};
use crate::error::{Fault, caught};
use crate::file::File;

/// A group is closed at this many operations or bytes of source.
const GROUP_OPERATIONS: usize = 8192;
const GROUP_BYTES: usize = 16 << 20;

/// The bytes of a queued operation without its source.
const OPERATION_BYTES: usize = 1024;
/// The unit of the queue's bound, in bytes.
const UNIT: usize = 1024;

/// A request to the writer. The answer releases the permit for its space in the queue.
#[derive(Debug)]
struct Job {
    work: Work,
    _room: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Work {
    Writes(Vec<Write>, oneshot::Sender<Vec<Outcome>>),
    Administer(Command, oneshot::Sender<Administered>),
}

#[derive(Debug)]
enum Message {
    Job(Job),
    /// Carry out the queue, accept nothing more, and end.
    Close,
}

/// The reason why the writer gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Nothing was sent to the writer.
    NotSent(String),
    /// The request may have been carried out, or may still be.
    InDoubt(String),
}

/// The queue of the writer thread.
#[derive(Debug)]
pub(crate) struct Queue {
    sender: UnboundedSender<Message>,
    /// Bounds queued and running requests.
    ///
    /// The channel is unbounded, so that [`close`](Self::close) never waits for space.
    room: Arc<Semaphore>,
    units: u32,
}

impl Queue {
    /// Starts the writer thread. `clock` is the last assigned number.
    pub(crate) fn start(
        file: Arc<File>,
        clock: u64,
        bytes: usize,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (sender, receiver) = unbounded_channel();
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        let room = Arc::new(Semaphore::new(units as usize));
        let thread = std::thread::Builder::new().name("txn-redb-writer".to_owned());
        let thread = thread.spawn(move || Writer { file, clock, broken: None }.run(receiver))?;
        Ok((Self { sender, room, units }, thread))
    }

    /// Sends writes, and waits for their outcomes until the deadline.
    pub(crate) async fn write(
        &self,
        writes: Vec<Write>,
        deadline: Instant,
    ) -> Result<Vec<Outcome>, NoAnswer> {
        let bytes = writes.iter().map(|write| write.op.source_len() + OPERATION_BYTES).sum();
        self.ask(bytes, deadline, |answer| Work::Writes(writes, answer)).await
    }

    /// Sends a command, and waits for its result until the deadline.
    pub(crate) async fn administer(
        &self,
        command: Command,
        deadline: Instant,
    ) -> Result<Administered, NoAnswer> {
        self.ask(OPERATION_BYTES, deadline, |answer| Work::Administer(command, answer)).await
    }

    async fn ask<A>(
        &self,
        bytes: usize,
        deadline: Instant,
        work: impl FnOnce(oneshot::Sender<A>) -> Work,
    ) -> Result<A, NoAnswer> {
        let not_sent = |why: &str| NoAnswer::NotSent(why.to_owned());
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, self.units);
        let room = timeout_at(deadline, self.room.clone().acquire_many_owned(units)).await;
        let room = room
            .map_err(|_| not_sent("the queue of writes stayed full until the request timeout"))?
            .map_err(|_| not_sent(&Fault::Closed.to_string()))?;
        let (answer, answered) = oneshot::channel();
        let job = Job { work: work(answer), _room: room };
        // The receiver is gone if the writer has ended, and then the writer did not get the job.
        self.sender
            .send(Message::Job(job))
            .map_err(|_| not_sent("the writer of the store has stopped; open the store again"))?;
        let in_doubt = |why: &str| NoAnswer::InDoubt(why.to_owned());
        timeout_at(deadline, answered)
            .await
            .map_err(|_| in_doubt("no answer from the writer until the request timeout"))?
            .map_err(|_| in_doubt("the writer of the store stopped; open the store again"))
    }

    /// Lets the writer end after the queue. Refuses callers that wait for space.
    pub(crate) fn close(&self) {
        self.room.close();
        // An error means that the writer has already ended.
        let _ = self.sender.send(Message::Close);
    }
}

/// The state of the writer thread.
struct Writer {
    file: Arc<File>,
    /// The last assigned number.
    ///
    /// After a failed transaction the number is ahead of the file's counter, so that one life of
    /// the store never assigns a version twice.
    clock: u64,
    /// The panic of redb in a write transaction. After a panic, redb's memory is unreliable.
    broken: Option<Fault>,
}

/// The answer to a job.
enum Answer {
    Writes(Vec<Outcome>),
    Administered(Administered),
}

/// The reason why a group has no answers yet.
enum Failure {
    /// Nothing of the group was written, for certain.
    NotWritten(Fault),
    /// The commit failed midway: the file holds the whole group, or nothing.
    InDoubt(Vec<Answer>, Fault),
}

impl<F: Into<Fault>> From<F> for Failure {
    fn from(fault: F) -> Self {
        Self::NotWritten(fault.into())
    }
}

impl Writer {
    fn run(mut self, mut receiver: UnboundedReceiver<Message>) {
        while let Some(message) = receiver.blocking_recv() {
            let mut group = Vec::new();
            let (mut operations, mut bytes) = (0, 0);
            let mut next = Some(message);
            while let Some(message) = next {
                match message {
                    // Queued messages still arrive, and then `blocking_recv` returns `None`.
                    Message::Close => receiver.close(),
                    Message::Job(job) => {
                        let (count, size) = job.work.weight();
                        operations += count;
                        bytes += size;
                        // A caller that gave up gets no service: its outcome is `Unknown` already.
                        if !job.work.is_abandoned() {
                            group.push(job);
                        }
                    }
                }
                let full = operations >= GROUP_OPERATIONS || bytes >= GROUP_BYTES;
                next = if full { None } else { receiver.try_recv().ok() };
            }
            if !group.is_empty() {
                self.carry_out(group);
            }
        }
    }

    fn carry_out(&mut self, group: Vec<Job>) {
        let file = self.file.clone();
        let mut result = None;
        let done = match self.broken.clone() {
            Some(fault) => Err(fault),
            None => file.with(|database| {
                result = Some(self.attempt(database, &group));
                Ok(())
            }),
        };
        let result = match (done, result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(Fault::Closed.into()),
            (Err(fault), _) => {
                if matches!(fault, Fault::Corrupt(_)) {
                    self.broken = Some(fault.clone());
                }
                Err(fault.into())
            }
        };
        let answers = match result {
            Ok(answers) => answers,
            Err(Failure::NotWritten(fault)) => {
                let fault = file.explain(fault);
                tracing::error!(%fault, jobs = group.len(), "a group was not written");
                group.iter().map(|job| not_written(&job.work, &fault)).collect()
            }
            Err(Failure::InDoubt(answers, fault)) => {
                let fault = file.explain(fault);
                tracing::error!(%fault, jobs = group.len(), "a commit failed midway");
                answers.into_iter().map(|answer| in_doubt(answer, &fault)).collect()
            }
        };
        for (job, answer) in group.into_iter().zip(answers) {
            // The send fails if the caller has given up.
            match (job.work, answer) {
                (Work::Writes(_, listener), Answer::Writes(outcomes)) => {
                    let _ = listener.send(outcomes);
                }
                (Work::Administer(_, listener), Answer::Administered(done)) => {
                    let _ = listener.send(done);
                }
                _ => {}
            }
        }
    }

    /// Carries out a group in one transaction, and commits any change.
    fn attempt(&mut self, database: &Database, group: &[Job]) -> Result<Vec<Answer>, Failure> {
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut changes = Changes::new(&transaction, &mut self.clock)?;
        let mut answers = Vec::with_capacity(group.len());
        for job in group {
            answers.push(match &job.work {
                Work::Writes(writes, _) => {
                    let outcomes = writes.iter().map(|write| match changes.write(write) {
                        Err(fault @ Fault::Damaged(_)) => Ok((&fault).into()),
                        outcome => outcome,
                    });
                    Answer::Writes(outcomes.collect::<Result<_, Fault>>()?)
                }
                Work::Administer(command, _) => {
                    Answer::Administered(match changes.administer(command) {
                        Err(fault @ Fault::Damaged(_)) => Err(fault.into()),
                        done => done?,
                    })
                }
            });
        }
        if !changes.finish()? {
            // Nothing to sync: every answer rests on committed data.
            transaction.abort()?;
            return Ok(answers);
        }
        match caught(|| transaction.commit()) {
            Ok(Ok(())) => Ok(answers),
            Ok(Err(error @ CommitError::TransactionPoisoned)) => {
                Err(Failure::NotWritten(error.into()))
            }
            Ok(Err(error)) => Err(Failure::InDoubt(answers, error.into())),
            Err(fault) => {
                self.broken = Some(fault.clone());
                Err(Failure::InDoubt(answers, fault))
            }
        }
    }
}

impl Work {
    /// Returns the number of operations, and their bytes.
    fn weight(&self) -> (usize, usize) {
        match self {
            Self::Writes(writes, _) => {
                (writes.len(), writes.iter().map(|write| write.op.source_len()).sum())
            }
            Self::Administer(..) => (1, 0),
        }
    }

    /// Whether no caller waits for the answer.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Writes(_, listener) => listener.is_closed(),
            Self::Administer(_, listener) => listener.is_closed(),
        }
    }
}

fn not_written(work: &Work, fault: &Fault) -> Answer {
    match work {
        Work::Writes(writes, _) => Answer::Writes(vec![fault.into(); writes.len()]),
        Work::Administer(..) => Answer::Administered(Err(fault.clone().into())),
    }
}

/// Returns the answer to a job whose commit failed midway.
///
/// A write with the outcome `Applied` may have been applied. Any other write was not applied, but
/// the reason of its outcome may be lost with the commit.
fn in_doubt(answer: Answer, fault: &Fault) -> Answer {
    let why = format!("the commit failed: {fault}; close the store and open it again");
    match answer {
        Answer::Writes(outcomes) => {
            let doubt = |outcome| match outcome {
                Outcome::Applied(_) => Outcome::Unknown(why.clone()),
                _ => fault.into(),
            };
            Answer::Writes(outcomes.into_iter().map(doubt).collect())
        }
        Answer::Administered(_) => {
            let message = format!("{why}; the change may have been made, check before repeating");
            Answer::Administered(Err(StoreError::new(StoreErrorKind::Unavailable, message)))
        }
    }
}

/// Returns when a request that begins now is given up.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    Instant::now() + timeout
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_store::Version;

    #[test]
    fn failed_commit_gives_no_false_outcome() {
        let fault = Fault::Storage("disk".to_owned());
        let version = Version::new(1, 1);
        let before = vec![Outcome::Applied(version), Outcome::Conflict, Outcome::Holds];
        let Answer::Writes(after) = in_doubt(Answer::Writes(before), &fault) else {
            panic!("the answer changed its kind");
        };
        assert!(matches!(&after[0], Outcome::Unknown(why) if why.contains("disk")));
        assert!(after[1..].iter().all(|outcome| matches!(outcome, Outcome::Rejected(_))));
        let Answer::Administered(Err(error)) = in_doubt(Answer::Administered(Ok(None)), &fault)
        else {
            panic!("an answer in doubt is no success");
        };
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
    }
}
