//! Reads of statements.
//!
//! A statement reads the account once, from the primary. The account has the balance and the number
//! of the last line, which were committed together. The lines up to this number were committed
//! earlier, and never change. A statement therefore shows one moment, even if transfers continue
//! between its pages, and ends with the balance of the account. The reads lock nothing.

use crate::error::Result;
use crate::model::{Account, Currency};
use crate::statement_lines::line_reader::LineReader;
use crate::statement_lines::statements::Line;

/// The number of lines per page.
const PAGE: u64 = 500;

/// A period of time, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Period {
    /// The inclusive start. `None` for the beginning of the statement.
    pub from: Option<u64>,
    /// The exclusive end. `None` for the end of the statement.
    pub to: Option<u64>,
}

impl Period {
    /// Sets [`Period::from`].
    #[must_use]
    pub fn with_from(mut self, from: Option<u64>) -> Self {
        self.from = from;
        self
    }

    /// Sets [`Period::to`].
    #[must_use]
    pub fn with_to(mut self, to: Option<u64>) -> Self {
        self.to = to;
        self
    }
}

/// The statement of an account, page by page.
#[derive(Debug)]
#[non_exhaustive]
pub struct Statement<'a> {
    /// The name of the account.
    pub name: String,
    /// The account at the start of the statement.
    pub account: Account,
    /// The balance before the first line of the period, in minor units.
    pub opening: i64,
    /// The balance after the last line of the period, in minor units.
    ///
    /// Without an end of the period, the balance of the account.
    pub closing: i64,
    reader: LineReader<'a>,
    /// The numbers of the next and of the last line.
    next: u64,
    last: u64,
    /// The unlisted changes after the last line.
    carried: Option<Line>,
}

impl<'a> Statement<'a> {
    /// Finds the lines of a period.
    ///
    /// `account` is the account as it was read.
    pub(crate) async fn of(
        reader: LineReader<'a>,
        name: &str,
        account: Account,
        period: Period,
        now: u64,
    ) -> Result<Self> {
        let count = account.statement.unwrap_or_default().lines;
        let next = reader.first_since(name, count, period.from).await?;
        let last = match period.to {
            Some(to) => reader.first_since(name, count, Some(to)).await?.max(next) - 1,
            None => count,
        };
        let carried = Line::carried(name, &account, now)?.filter(|_| period.to.is_none());
        let opening = reader.balance_after(name, next - 1).await?;
        let closing = match &carried {
            Some(carried) => carried.balance,
            None => reader.balance_after(name, last).await?,
        };
        let name = name.to_owned();
        Ok(Self { name, account, opening, closing, reader, next, last, carried })
    }
}

impl Statement<'_> {
    /// Returns the next lines by time, or `None` at the end.
    ///
    /// Each line has the balance after it.
    ///
    /// # Errors
    /// [`BankError::StatementDamaged`](crate::BankError::StatementDamaged), or an error of the
    /// engine. The next call repeats the same page.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the next call repeats the same page.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Line>>> {
        if self.next > self.last {
            return Ok(self.carried.take().map(|line| vec![line]));
        }
        let last = self.last.min(self.next + PAGE - 1);
        let lines = self.reader.lines(&self.name, self.next, last, true).await?;
        self.next = last + 1;
        Ok(Some(lines))
    }

    /// The currency of the account.
    #[must_use]
    pub fn currency(&self) -> Currency {
        self.account.currency
    }
}
