//! A worker, which runs one transaction after the other.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;
use txn_core::{Domain, Error, ErrorKind, Transaction};

use super::plan::{How, Plan, Planner, Supply};
use super::{Counters, Documents, Fleet, Stop, Values, WorkloadConfig};
use crate::history::{Micro, Model, Seen};
use crate::recorder::Recorder;

pub(super) struct Worker {
    pub(super) number: usize,
    pub(super) config: WorkloadConfig,
    pub(super) fleet: Arc<Fleet>,
    pub(super) documents: Documents,
    pub(super) recorder: Arc<Recorder>,
    pub(super) supply: Arc<Supply>,
    pub(super) planner: Planner,
    pub(super) counters: Arc<Counters>,
    pub(super) began: Instant,
    pub(super) begun: Arc<AtomicU64>,
}

/// The error at the end of a closure.
#[derive(Debug)]
enum Left {
    /// The planned error, with the reads of the closure.
    GivenUp(Vec<Micro>),
    Failed(Error),
}

impl From<Error> for Left {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Worker {
    pub(super) async fn work(mut self, until: Stop) {
        let mut process = self.number as u64;
        while !until.is_reached(self.began, self.begun.fetch_add(1, Ordering::Relaxed)) {
            let plan = self.planner.next(&self.supply);
            if !self.carry_out(process, &plan).await {
                // The writes may show at any time, so this process number is not used again.
                process += self.config.workers.max(1) as u64;
            }
        }
    }

    /// Runs one transaction and records it. Returns whether its outcome is known.
    async fn carry_out(&self, process: u64, plan: &Plan) -> bool {
        let domain = self.fleet.domain(self.number);
        let call = self.recorder.invoke(process, plan.visible());
        let attempt = self.attempt(&domain, plan);
        let result = match plan.abandoned_after {
            Some(patience) => tokio::time::timeout(patience, attempt).await.ok(),
            None => Some(attempt.await),
        };
        let Some(result) = result else {
            self.counters.unknown.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        if let Err(error) = &result {
            self.counters.complaints.add((), error);
        }
        match result {
            Ok(value) => {
                call.ok(value);
                self.counters.acknowledged.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(error) if !matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Damaged) => {
                call.fail(error.to_string());
                self.counters.aborted.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(error) => {
                if error.kind() == ErrorKind::Damaged {
                    self.counters.damaged.fetch_add(1, Ordering::Relaxed);
                }
                call.info(error.to_string(), error.tid());
                self.counters.unknown.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// Runs a call of the library, and notes it if it is the longest one.
    async fn timed<T, E: Debug>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let result = call.await;
        self.counters.longest.add(began.elapsed(), || match &result {
            Ok(_) => format!("{what}, without an error"),
            Err(error) => format!("{what}, error: {error:?}"),
        });
        result
    }

    async fn attempt(&self, domain: &Domain, plan: &Plan) -> Result<Vec<Micro>, Error> {
        match &plan.how {
            How::Transaction(options) => {
                let run = domain.run(options, async |tx| self.steps(tx, plan).await);
                match self.timed("a list transaction", run).await {
                    Ok(done) => Ok(done.value),
                    Err(Left::GivenUp(value)) => Ok(value),
                    Err(Left::Failed(error)) => Err(error),
                }
            }
            How::VerifiedRead => {
                let mut value = plan.micros.clone();
                for micro in &mut value {
                    let id = self.config.id(micro.key());
                    // Each read has the timeout of the domain.
                    let reader = domain.reader().verified();
                    let read = self.timed("a verified read", reader.get(&self.documents, id));
                    let found = read.await?;
                    self.show(micro, &found.unwrap_or_default());
                }
                Ok(value)
            }
        }
    }

    /// The closure of a transaction.
    async fn steps(&self, tx: &Transaction, plan: &Plan) -> Result<Vec<Micro>, Left> {
        if plan.together {
            let ids = plan.micros.iter().map(|micro| self.config.id(micro.key()));
            tx.get_many(&self.documents, ids).await?;
        }
        let mut value = plan.micros.clone();
        for micro in &mut value {
            let id = self.config.id(micro.key());
            match micro {
                Micro::Write { value, .. } => {
                    tx.put(&self.documents, id, &Values { values: vec![*value] })?;
                }
                Micro::Append { value, .. } => {
                    let mut list = tx.get(&self.documents, id.clone()).await?.unwrap_or_default();
                    list.values.push(*value);
                    tx.put(&self.documents, id, &list)?;
                }
                Micro::Read { .. } => {
                    let found = tx.get(&self.documents, id).await?.unwrap_or_default();
                    self.show(micro, &found);
                }
            }
        }
        if !plan.pause.is_zero() {
            tokio::time::sleep(plan.pause).await;
        }
        if plan.gives_up {
            value.retain(|micro| matches!(micro, Micro::Read { .. }));
            return Err(Left::GivenUp(value));
        }
        Ok(value)
    }

    /// Notes the result of a read.
    fn show(&self, micro: &mut Micro, found: &Values) {
        if let Micro::Read { seen, .. } = micro {
            *seen = seen_of(self.config.model, found);
        }
    }
}

pub(super) fn seen_of(model: Model, found: &Values) -> Seen {
    match (model, found.values.last()) {
        (Model::ListAppend, _) => Seen::List(found.values.clone()),
        (Model::Register, Some(value)) => Seen::Value(*value),
        (Model::Register, None) => Seen::Nil,
    }
}
