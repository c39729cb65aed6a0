//! Reads of the lines of statements, by their numbers.

use txn_core::Domain;

use crate::error::{BankError, Result};
use crate::statement_lines::statements::{Line, Statements};

/// Reads the lines of accounts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineReader<'a> {
    domain: &'a Domain,
    statements: &'a Statements,
}

impl<'a> LineReader<'a> {
    pub(crate) fn new(domain: &'a Domain, statements: &'a Statements) -> Self {
        Self { domain, statements }
    }

    /// The number of the first line since a time, or `lines + 1`.
    pub(crate) async fn first_since(
        &self,
        name: &str,
        lines: u64,
        since: Option<u64>,
    ) -> Result<u64> {
        let Some(since) = since else { return Ok(1) };
        // The times of an account's lines never decrease.
        let (mut low, mut high) = (1, lines + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.line(name, middle).await?.at < since {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }

    /// Returns the balance after a line, or 0 before the first one.
    pub(crate) async fn balance_after(&self, name: &str, number: u64) -> Result<i64> {
        if number == 0 {
            return Ok(0);
        }
        Ok(self.line(name, number).await?.balance)
    }

    async fn line(&self, name: &str, number: u64) -> Result<Line> {
        let missing = || damaged(name, number, "is missing");
        self.lines(name, number, number, true).await?.pop().ok_or_else(missing)
    }

    /// Reads lines by their numbers, from the primary if `verified`.
    pub(crate) async fn lines(
        &self,
        name: &str,
        first: u64,
        last: u64,
        verified: bool,
    ) -> Result<Vec<Line>> {
        let ids = (first..=last).map(|number| Statements::id(name, number));
        let reader = self.domain.reader();
        let reader = if verified { reader.verified() } else { reader };
        let found = reader.get_many(&self.statements.lines, ids).await?;
        let mut lines = Vec::with_capacity(found.len());
        for (number, line) in (first..=last).zip(found) {
            let line = line.ok_or_else(|| damaged(name, number, "is missing"))?;
            let newer = |format| {
                let what =
                    format!("has the format {format}: use the newer version of this program");
                damaged(name, number, &what)
            };
            let line = line.known().map_err(newer)?;
            if line.number != number || line.account != name {
                return Err(damaged(name, number, "is another line"));
            }
            lines.push(line);
        }
        Ok(lines)
    }
}

fn damaged(name: &str, line: u64, what: &str) -> BankError {
    BankError::StatementDamaged { account: name.to_owned(), line, what: what.to_owned() }
}
