//! The bank's hook in the transactions of submitted transfers.
//!
//! The hook refuses changes of closed accounts, writes the lines of statements, and emits events of
//! owners.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use txn_core::Transaction;
use txn_outbox::OutboxError;
use txn_requests::{Companion, Operation, Refusal, Request, RequestError, Why};

use crate::error::{BankError, Result};
use crate::statement_lines::statements::{Change, LineKind};
use crate::transfers::ledger::Ledger;

/// The field of a closed account.
pub(crate) const CLOSED: &str = "/closed_at";

/// The hook in the requests of a bank.
#[derive(Debug)]
pub(crate) struct TransferHook {
    ledger: Ledger,
}

impl TransferHook {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self { ledger }
    }

    /// The sums of a request by account, and its transfer key.
    fn sums<'a>(&self, request: &'a Request) -> (BTreeMap<&'a str, i64>, Option<&'a str>) {
        let (mut sums, mut key) = (BTreeMap::<&str, i64>::new(), None);
        for operation in &request.operations {
            let target = operation.target();
            match operation {
                Operation::Add(add) if target.collection == self.ledger.accounts().name() => {
                    // An amount that does not fit was refused, or becomes part of the next carried
                    // line.
                    let amount = add.amount.as_i64().unwrap_or(0);
                    let sum = sums.entry(&target.id).or_default();
                    *sum = sum.saturating_add(amount);
                }
                Operation::Insert(_) if target.collection == self.ledger.transfers().name() => {
                    key = Some(&*target.id);
                }
                _ => {}
            }
        }
        (sums, key)
    }

    /// Refuses a request that changes a closed account.
    ///
    /// The reversal of a transfer does not contain the conditions of the transfer itself.
    async fn check(&self, tx: &Transaction, request: &Request) -> Result<(), RequestError> {
        for (at, operation) in request.operations.iter().enumerate() {
            let target = operation.target();
            let is_sum = matches!(operation, Operation::Add(_));
            if !is_sum || target.collection != self.ledger.accounts().name() {
                continue;
            }
            let account = tx.get(self.ledger.accounts(), &target.id).await?;
            if let Some(closed_at) = account.and_then(|account| account.closed_at) {
                let refusal = Refusal::new(at, target.clone(), Why::FieldDiffers);
                let refusal = refusal.at(CLOSED, Some(closed_at.into()));
                return Err(RequestError::Refused(Box::new(refusal)));
            }
        }
        Ok(())
    }

    /// Writes the statement lines of a transfer.
    ///
    /// Changes by other requests become part of the next carried line.
    async fn note(&self, tx: &Transaction, request: &Request) -> Result<()> {
        let Some(statements) = self.ledger.statements() else { return Ok(()) };
        let (sums, Some(transfer)) = self.sums(request) else { return Ok(()) };
        let now = self.ledger.now();
        let found = tx.get_many(self.ledger.accounts(), sums.keys().copied()).await?;
        for ((name, amount), account) in sums.into_iter().zip(found) {
            let Some(mut account) = account else { continue };
            let change = Change { kind: LineKind::Transfer, transfer, amount, now };
            statements.note(tx, name, &mut account, &change)?;
            tx.put(self.ledger.accounts(), name, &account)?;
        }
        Ok(())
    }

    async fn emit(&self, tx: &Transaction, request: &Request) -> Result<(), OutboxError> {
        let Some(owners) = self.ledger.owners() else { return Ok(()) };
        let targets = request.operations.iter().filter(|one| !matches!(one, Operation::Expect(_)));
        let targets = targets.map(Operation::target);
        let names: BTreeSet<&str> = targets
            .filter(|at| at.collection == self.ledger.accounts().name())
            .map(|at| &*at.id)
            .collect();
        owners.changed_by_name(tx, &names).await
    }
}

#[async_trait]
impl Companion for TransferHook {
    async fn accompany(&self, tx: &Transaction, request: &Request) -> Result<(), RequestError> {
        self.check(tx, request).await?;
        self.note(tx, request).await.map_err(|error| match error {
            BankError::Engine(error) => RequestError::Engine(error),
            error => RequestError::Companion(Box::new(error)),
        })?;
        self.emit(tx, request).await.map_err(|error| match error {
            OutboxError::Engine(error) => RequestError::Engine(error),
            error => RequestError::Companion(Box::new(error)),
        })
    }
}
