//! The end: everything settled, recovered, and compared with the books.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use txn_core::store::Filter;
use txn_core::{Error, ErrorKind, TransactionOutcome};

use super::{Ledger, PATIENCE, one};
use crate::bank;

/// Documents that are read at once.
const PAGE: usize = 200;

impl Ledger {
    /// Settles what is unknown, lets the janitor finish what was left behind, and compares everything that there is with
    /// the books. Returns what is wrong, with what was seen while the load ran. To be called while no load runs
    /// and no write is late any more; the load may go on afterwards.
    pub async fn verify(&self) -> Vec<String> {
        let mut wrong = self.violations();
        self.settle(&mut wrong).await;
        self.recover(&mut wrong).await;
        if let Err(error) = self.compare(&mut wrong).await {
            wrong.push(format!("the documents can not be read: {error}"));
        }
        wrong
    }

    /// Asks for every outcome that is unknown.
    async fn settle(&self, wrong: &mut Vec<String>) {
        let inner = &self.inner;
        let unsettled = std::mem::take(&mut inner.book.lock().unsettled);
        let began = Instant::now();
        for (tid, entry) in unsettled {
            loop {
                match inner.witness.outcome(tid).await {
                    Ok(TransactionOutcome::Committed { .. }) => {
                        inner.book.lock().enter(entry);
                        one(&inner.tally.settled_committed);
                    }
                    Ok(TransactionOutcome::Aborted) => one(&inner.tally.settled_aborted),
                    Err(error) if passes(&error) && began.elapsed() < PATIENCE => {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                    other => wrong.push(format!("the outcome of {tid} is {other:?}")),
                }
                break;
            }
        }
    }

    /// Coordinators may still apply what they committed, so that it may take more than one pass.
    async fn recover(&self, wrong: &mut Vec<String>) {
        let began = Instant::now();
        loop {
            let left = match self.inner.witness.janitor_pass().await {
                Ok(report) if report.is_clean() => return,
                Ok(report) => format!("{report:?}"),
                Err(error) if passes(&error) => error.to_string(),
                Err(error) => return wrong.push(format!("the janitor failed: {error:?}")),
            };
            if began.elapsed() > PATIENCE {
                return wrong.push(format!("left over: {left}"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn compare(&self, wrong: &mut Vec<String>) -> Result<(), Error> {
        let inner = &self.inner;
        let reader = inner.witness.reader().verified();
        let (balances, slips, ticks) = {
            let book = inner.book.lock();
            (book.balances.clone(), book.slips.clone(), book.ticks.clone())
        };
        for (names, expected) in inner.names.chunks(PAGE).zip(balances.chunks(PAGE)) {
            let found = reader.get_many(&inner.accounts, names.iter().map(String::as_str)).await?;
            for ((name, expected), found) in names.iter().zip(expected).zip(found) {
                let found = found.map(|found| found.balance);
                if found != Some(*expected) {
                    wrong.push(format!("{name} holds {found:?} instead of {expected}"));
                }
            }
        }
        for (name, slip) in &slips {
            let found = reader.get(&inner.accounts, name.as_str()).await?;
            if found.map(|found| found.balance) != slip.content {
                wrong.push(format!("{name} is {found:?}, and {slip:?} was expected"));
            }
        }
        for (name, tick) in &ticks {
            let found = reader.get(&inner.accounts, name.as_str()).await?;
            let found = found.unwrap_or_default().balance;
            if found != tick.certain && !tick.possible.contains(&found) {
                wrong.push(format!("{name} is {found}, and {tick:?} was expected"));
            }
        }
        let known: BTreeSet<&str> = inner.names.iter().map(String::as_str).collect();
        let present = slips.iter().filter(|(_, slip)| slip.content.is_some());
        let known: BTreeSet<&str> = known
            .into_iter()
            .chain(present.map(|(name, _)| name.as_str()))
            .chain(ticks.keys().map(String::as_str))
            .collect();
        // A search also shows the placeholder of a coordinator that just proves an absence: that is no document.
        for stranger in self.ids().await?.iter().filter(|id| !known.contains(id.as_str())) {
            if let Some(found) = reader.get(&inner.accounts, stranger.as_str()).await? {
                wrong.push(format!("there is a document {stranger} that nobody wrote: {found:?}"));
            }
        }
        Ok(())
    }

    /// The ids of all documents, as a search sees them after a refresh.
    async fn ids(&self) -> Result<Vec<String>, Error> {
        let store = &self.inner.witness_store;
        store.refresh(self.collection()).await?;
        let mut ids = Vec::new();
        let mut from = None;
        loop {
            let page = store.scan(self.collection(), &Filter::All, PAGE, from.take()).await?;
            ids.extend(page.documents.into_iter().map(|(key, ..)| key.id.to_string()));
            match page.next {
                Some(next) => from = Some(next),
                None => return Ok(ids),
            }
        }
    }

    /// The balances, as they are.
    ///
    /// # Panics
    /// If the store does not answer.
    pub async fn balances(&self) -> Vec<Option<i64>> {
        bank::balances(&self.inner.witness, &self.inner.accounts, &self.inner.names).await
    }
}

fn passes(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Unknown)
}
