//! Read-only transactions: two equal reads, or locks.

use std::collections::BTreeMap;

use super::{Context, Process};
use crate::network::{Purpose, Request};
use crate::store::{Answer, Operation};
use crate::workload::{Kind, Transaction};

/// A read-only transaction that reads and validates.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) transaction: Transaction,
    versions: BTreeMap<usize, u64>,
    looks: u32,
}

impl Process {
    pub(super) fn start_reader(&mut self, transaction: Transaction, cx: &mut Context<'_>) {
        self.number += 1;
        let reader = Reader { transaction, versions: BTreeMap::new(), looks: 0 };
        self.look_for_reader(self.number, &reader, cx);
        self.readers.insert(self.number, reader);
    }

    fn look_for_reader(&self, number: u64, reader: &Reader, cx: &mut Context<'_>) {
        let reads = reader.transaction.documents.iter().copied().map(Operation::Read).collect();
        self.send(Purpose::Validate(number), reads, cx);
    }

    /// Compares a read with the one before.
    ///
    /// After too many changes the transaction locks its documents.
    pub(super) fn validate(&mut self, number: u64, request: &Request, cx: &mut Context<'_>) {
        let Some(mut reader) = self.readers.remove(&number) else { return };
        let mut is_locked = false;
        let mut versions = BTreeMap::new();
        for (operation, answer) in request.operations.iter().zip(&request.answers) {
            if let (Operation::Read(index), Answer::Document(document)) = (operation, answer) {
                is_locked |= document.lock.is_some();
                versions.insert(*index, document.version);
            }
        }
        let is_complete = versions.len() == reader.transaction.documents.len();
        if is_complete && !is_locked && versions == reader.versions {
            self.complete(vec![reader.transaction], cx);
            return;
        }
        (reader.versions, reader.looks) = (versions, reader.looks + 1);
        if reader.looks < self.numbers.looks {
            self.look_for_reader(number, &reader, cx);
            self.readers.insert(number, reader);
            return;
        }
        self.met_another(cx.now);
        let mut transaction = reader.transaction;
        transaction.kind = Kind::LockedRead;
        transaction.passed_over_since = Some(transaction.started_at);
        self.pending.push(transaction);
    }
}
