//! The attempts of one transaction of `Domain::run`, first to last.
//!
//! The steps are boxed futures, so that the loop of `Domain::run`, which is compiled for each
//! closure of an application, stays small.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::SemaphorePermit;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument;

use crate::api::transaction::Transaction;
use crate::attempt::committing::rollback::Why;
use crate::attempt::{AttemptMode, Receipt, nesting};
use crate::config::{Options, ReadMode};
use crate::engine::SharedEngine;
use crate::engine::attempt_error::{AttemptError, RetryReason};
use crate::engine::deadline::Deadline;
use crate::engine::hot::board::Contender;
use crate::engine::signals::transaction_span::TransactionSpan;
use crate::error::{Error, Result};
use crate::event::AbortReason;
use crate::group::{AttemptNumbers, CallerMessage, Groups, Rerun, WaitingCaller};
use txn_protocol::ids::AttemptId;

/// The failed attempts in groups after which a transaction joins none.
///
/// The transaction then locks documents when it reads them.
const ATTEMPTS_IN_GROUPS: u16 = 8;

/// A transaction leaves the queue after its closure missed this many groups.
const MOST_LATE_RUNS: u32 = 3;

/// A read-only transaction locks its reads after this many failed attempts.
const READ_ONLY_ATTEMPTS: u16 = 3;

/// The step after a closure that returned a value.
pub(super) enum Next {
    /// The transaction is committed.
    Committed(Receipt),
    /// The closure runs again in this attempt. A group changed the reads of the transaction.
    Rerun(Transaction),
    /// The closure runs in the next attempt.
    Retry(Transaction),
}

/// Refuses new transactions after the shutdown of the domain began.
pub(super) fn check_open(engine: &SharedEngine) -> Result<()> {
    // A nested transaction belongs to a running one.
    let nested = !nesting::enclosing().is_empty();
    match engine.context.lifecycle.closing().is_cancelled() && !nested {
        true => Err(Error::unavailable("the domain is shutting down")),
        false => Ok(()),
    }
}

/// One transaction of `Domain::run`.
pub(super) struct TransactionRun<'a> {
    engine: &'a SharedEngine,
    options: Options,
    deadline: Duration,
    /// The id of the transaction. Its attempts differ in their numbers only.
    id: AttemptId,
    attempts: AttemptNumbers,
    /// The queue for groups, while the transaction may join one.
    groups: Option<&'a Arc<Groups>>,
    /// The number of attempts that this loop has begun.
    tries: u16,
    pessimistic: bool,
    /// The transaction in the queue. `Some` while the closure runs again for a group.
    rerun: Option<(WaitingCaller, Rerun)>,
    /// The number of further runs of this attempt that missed their groups.
    late: u32,
    trace: TransactionSpan,
    _contender: Contender,
    _permit: Option<SemaphorePermit<'a>>,
    _running: TaskTrackerToken,
}

impl<'a> TransactionRun<'a> {
    /// Waits for a permit of the domain.
    pub(super) fn begin(
        engine: &'a SharedEngine,
        groups: Option<&'a Arc<Groups>>,
        options: &'a Options,
    ) -> BoxFuture<'a, Result<TransactionRun<'a>>> {
        Box::pin(Self::admit(engine, groups, options))
    }

    async fn admit(
        engine: &'a SharedEngine,
        groups: Option<&'a Arc<Groups>>,
        options: &Options,
    ) -> Result<TransactionRun<'a>> {
        // A shutdown waits for this transaction, with all its attempts.
        let running = engine.context.lifecycle.running();
        check_open(engine)?;
        let wait = engine.context.config.timeout_of(options)?;
        let deadline = engine.context.now() + wait;
        // A nested transaction uses the permit of its outer transaction.
        let permit = match nesting::enclosing().is_empty() {
            true => Some(engine.hot.admission.enter(&*engine.context.config.clock, wait).await?),
            false => None,
        };
        let id = engine.time.start_id();
        let trace = TransactionSpan::open(engine.table.domain(), id, options.label.as_deref());
        Ok(Self {
            engine,
            options: options.clone(),
            deadline,
            id,
            attempts: AttemptNumbers::default(),
            groups,
            tries: 0,
            pessimistic: options.locks_at_read(),
            rerun: None,
            late: 0,
            trace,
            _contender: engine.hot.board.contend(id.age()),
            _permit: permit,
            _running: running,
        })
    }

    /// Starts the next attempt.
    pub(super) fn start_attempt(&mut self) -> Result<Transaction> {
        let tid = self.id.with_attempt(self.attempts.next());
        let mode = AttemptMode {
            pessimistic: self.pessimistic,
            uses_cache: self.groups.is_some(),
            ..AttemptMode::default()
        };
        self.tries += 1;
        self.late = 0;
        let span = self.trace.span();
        Transaction::start(self.engine, tid, &self.options, mode, self.deadline, span)
    }

    /// Commits the writes of a successful closure, alone or in a group.
    pub(super) fn closure_returned(&mut self, tx: Transaction) -> BoxFuture<'_, Result<Next>> {
        let span = self.trace.span().clone();
        let commit = async move {
            let next = self.commit(tx).await;
            match &next {
                Ok(Next::Committed(_)) => self.trace.committed(self.tries),
                Ok(Next::Rerun(_) | Next::Retry(_)) => {}
                Err(error) => self.trace.failed(self.tries, error),
            }
            next
        };
        Box::pin(commit.instrument(span))
    }

    /// Ends the attempt of a closure that returned an error.
    ///
    /// Returns the handle for the next run; `None` if the caller gets the error of the closure.
    pub(super) fn closure_failed(
        &mut self,
        tx: Transaction,
    ) -> BoxFuture<'_, Result<Option<Transaction>>> {
        let span = self.trace.span().clone();
        let examine = async move {
            let next = self.examine(tx).await;
            match &next {
                Ok(Some(_)) => {}
                Ok(None) => self.trace.rolled_back(self.tries),
                Err(error) => self.trace.failed(self.tries, error),
            }
            next
        };
        Box::pin(examine.instrument(span))
    }

    async fn commit(&mut self, tx: Transaction) -> Result<Next> {
        let rerun = self.rerun.take();
        let caller = match rerun {
            None => {
                tx.confirm_aliases().await?;
                self.enqueue(&tx)
            }
            // The run failed on uncommitted content of its group, which goes on at once.
            Some(rerun) if tx.is_doomed() => {
                drop(rerun);
                return self.leave_group(tx).await;
            }
            Some((caller, rerun)) => {
                let caller = match rerun.ran() {
                    true => Some(caller),
                    false => self.enqueue_late(&tx),
                };
                if caller.is_none() {
                    return self.leave_group(tx).await;
                }
                caller
            }
        };
        let Some(mut caller) = caller else {
            let result = tx.conclude().await;
            return self.end_attempt(tx, result).await;
        };
        match caller.reply().await {
            CallerMessage::Ended(result) => {
                drop(caller);
                self.end_attempt(tx, result).await
            }
            CallerMessage::Rerun(rerun) => {
                tx.run_again();
                tx.attempt().restart_on(rerun.batch());
                self.rerun = Some((caller, rerun));
                Ok(Next::Rerun(tx))
            }
        }
    }

    /// Queues the attempt for a group, if the attempt may join one.
    fn enqueue(&self, tx: &Transaction) -> Option<WaitingCaller> {
        let groups = self.groups.filter(|_| !tx.is_doomed())?;
        groups.enqueue(tx.attempt(), &self.attempts, self.tries > 1)
    }

    /// Queues the attempt again after its run missed the group.
    fn enqueue_late(&mut self, tx: &Transaction) -> Option<WaitingCaller> {
        self.late += 1;
        if self.late > MOST_LATE_RUNS {
            return None;
        }
        self.enqueue(tx)
    }

    async fn leave_group(&mut self, tx: Transaction) -> Result<Next> {
        Ok(Next::Retry(self.start_over(tx, RetryReason::LeftGroup).await?))
    }

    async fn end_attempt(
        &mut self,
        tx: Transaction,
        result: Result<Receipt, AttemptError>,
    ) -> Result<Next> {
        match result {
            Ok(receipt) => {
                tx.run_callbacks();
                Ok(Next::Committed(Receipt { attempts: u32::from(self.tries), ..receipt }))
            }
            Err(AttemptError::Retry(reason)) => Ok(Next::Retry(self.start_over(tx, reason).await?)),
            Err(AttemptError::Fail(error)) => Err(error.of_attempt(tx.attempt().tid)),
        }
    }

    /// Validates the reads of a closure that failed. An error that rests on reads of different
    /// states is not returned.
    async fn examine(&mut self, tx: Transaction) -> Result<Option<Transaction>> {
        // The run failed on uncommitted content of its group, so its error is not reported.
        if self.rerun.take().is_some() {
            return self.start_over(tx, RetryReason::LeftGroup).await.map(Some);
        }
        match tx.examine().await {
            Ok(()) => {
                tx.attempt()
                    .roll_back(Why::ended(AbortReason::RolledBack, "the application's own error"))
                    .await;
                Ok(None)
            }
            Err(AttemptError::Retry(reason)) => self.start_over(tx, reason).await.map(Some),
            Err(AttemptError::Fail(error)) => {
                tx.attempt().roll_back(Why::failed(&error)).await;
                Err(error.in_transaction(tx.attempt().tid))
            }
        }
    }

    /// Rolls the attempt back, and starts the next one.
    async fn start_over(&mut self, tx: Transaction, reason: RetryReason) -> Result<Transaction> {
        let engine = self.engine;
        tx.attempt().roll_back(Why::retried(&reason)).await;
        if let Some(document) = reason.document() {
            engine.hot.cache.was_stale(document, engine.context.now());
        }
        self.choose_mode(&tx, &reason);
        let locks = tx.attempt().has_writes() || self.pessimistic;
        let tid = tx.attempt().tid;
        drop(tx);
        self.check_retry(tid, &reason)?;
        if let RetryReason::Waited(document) = &reason
            && locks
        {
            let _wanted = engine.hot.board.want([document]);
            // The next attempt reports a passed deadline.
            let until = Deadline::until(self.deadline);
            let _ = engine.turns.wait_for_turn(slice::from_ref(document), &until).await;
            engine.hot.board.keep([document], engine.context.now());
        }
        self.start_attempt()
    }

    /// Chooses whether the next attempt may join groups, and its locking.
    fn choose_mode(&mut self, tx: &Transaction, reason: &RetryReason) {
        let stays_in_groups = self.groups.is_some()
            && self.tries < ATTEMPTS_IN_GROUPS
            && !tx.attempt().is_excluded_from_groups();
        if matches!(reason, RetryReason::LeftGroup) {
            self.groups = None;
        } else if tx.attempt().has_writes() {
            self.pessimistic |= !stays_in_groups;
            self.groups = self.groups.filter(|_| stays_in_groups);
        } else {
            self.groups = self.groups.filter(|_| !matches!(reason, RetryReason::Waited(_)));
            // Other transactions change or lock the reads faster than this one validates them, so
            // this one locks as it reads.
            let locks = self.tries >= READ_ONLY_ATTEMPTS;
            self.pessimistic |= locks;
            if locks {
                self.options.read_mode = ReadMode::Lock;
            }
        }
    }

    fn check_retry(&self, tid: AttemptId, reason: &RetryReason) -> Result<()> {
        let (engine, tries) = (self.engine, self.tries);
        let give_up =
            |why: &str| Err(reason.clone().into_error(&format!("{why}: ")).in_transaction(tid));
        if tries >= engine.context.config.max_attempts {
            return give_up(&format!("gave up after {tries} attempts"));
        }
        if engine.context.now() >= self.deadline {
            return give_up(&format!("the deadline passed after {tries} attempts"));
        }
        Ok(())
    }
}
