//! The transfers of a bank.

use txn_outbox::http::HttpRequests;

use super::{MOST_RETRIES, is_exists};
use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::Leg;
use crate::model::Transfer;
use crate::transfers::rules::{check_transfer, extras};
use crate::transfers::transfer::{Status, TransferOptions, Transferred};

impl Bank {
    /// Moves money between any number of accounts in one transaction.
    ///
    /// Money moves once per key. Without a key the bank generates one.
    ///
    /// # Errors
    /// Errors of [`BankError`] about legs, accounts and keys, or an error of the engine.
    pub async fn transfer(&self, key: Option<&str>, legs: &[Leg]) -> Result<Transferred> {
        self.transfer_with(key, legs, &TransferOptions::default()).await
    }

    /// As [`Bank::transfer`], with options.
    ///
    /// # Errors
    /// As [`Bank::transfer`]; [`BankError::AccountExists`] for an account to open.
    pub async fn transfer_with(
        &self,
        key: Option<&str>,
        legs: &[Leg],
        options: &TransferOptions,
    ) -> Result<Transferred> {
        let key = key.map_or_else(|| self.new_key(), str::to_owned);
        check_transfer(Some(&key), legs)?;
        let calls = match options.after_commit.is_empty() {
            true => None,
            false => Some(HttpRequests::new(&self.outbox().await?)),
        };
        for (calls, call) in
            calls.iter().flat_map(|of| options.after_commit.iter().map(move |call| (of, call)))
        {
            calls.check(call)?;
        }
        let extras = extras(&options.open, &options.after_commit)?;
        let mut retries = 0;
        loop {
            let done = self.domain.run(&options.transaction, async |tx| {
                let moved =
                    self.ledger.move_money(tx, &key, legs, options, extras.as_deref()).await;
                let (status, transfer) = moved?;
                if let (Some(calls), Status::Done) = (&calls, status) {
                    for call in &options.after_commit {
                        calls.after_commit(tx, call).await?;
                    }
                }
                Ok::<_, BankError>((status, transfer))
            });
            match done.await {
                Ok(done) => {
                    let ((status, transfer), receipt) = (done.value, done.receipt);
                    let (tid, attempts) = (receipt.tid, receipt.attempts);
                    return Ok(Transferred { status, transfer, tid, attempts });
                }
                // Another process used the key at the same moment: read its transfer.
                Err(error) if is_exists(&error) && retries < MOST_RETRIES => retries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a transfer by its key, without a transaction.
    ///
    /// # Errors
    /// [`BankError::UnknownTransfer`], or an error of the engine.
    pub async fn transfer_of(&self, key: &str) -> Result<Transfer> {
        let found = self.domain.reader().verified().get(self.ledger.transfers(), key).await?;
        found.ok_or_else(|| BankError::UnknownTransfer(key.to_owned()))
    }
}
