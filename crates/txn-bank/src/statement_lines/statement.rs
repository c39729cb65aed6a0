//! Reads of statements.
//!
//! A statement reads the account once, from the primary. The account has the balance and the number
//! of the last line, which were committed together. The lines up to this number were committed
//! earlier, and never change. A statement therefore shows one moment, even if transfers continue
//! between its pages, and ends with the balance of the account. The reads lock nothing.

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::check_name;
use crate::model::{Account, Currency};
use crate::statement_lines::statements::{Line, Statements};

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
    bank: &'a Bank,
    /// The numbers of the next and of the last line.
    next: u64,
    last: u64,
    /// The unlisted changes after the last line.
    carried: Option<Line>,
}

impl Bank {
    /// Starts to keep a line for each change, in the collection `<domain>-statements`.
    ///
    /// A transfer then writes one more document per leg. Banks that are opened afterwards write
    /// lines. Banks that are already open do not: open them again. Earlier changes, and changes by
    /// such banks, become one line [`Carried`](crate::LineKind::Carried) before the next line.
    ///
    /// # Errors
    /// As [`txn_core::Domain::create_collection`].
    pub async fn keep_statements(self) -> Result<Self> {
        let statements = Statements::open(self.domain()).await?;
        Ok(self.with_statements(Some(statements)))
    }

    /// Whether the bank keeps statements.
    #[must_use]
    pub fn keeps_statements(&self) -> bool {
        self.statements().is_some()
    }

    /// The statement of an open or closed account, as of one moment.
    ///
    /// The cost is one read of the account, a few lines to find the period, and one request per 500
    /// lines.
    ///
    /// # Errors
    /// [`BankError::NoStatements`], [`BankError::UnknownAccount`], [`BankError::InvalidName`],
    /// [`BankError::StatementDamaged`], or an error of the engine.
    pub async fn statement(&self, name: &str, period: Period) -> Result<Statement<'_>> {
        check_name(name)?;
        self.kept_statements()?;
        let reader = self.domain().reader().verified();
        let account = reader.get(self.collections().0, name).await?;
        let account = account.ok_or_else(|| BankError::UnknownAccount(name.to_owned()))?;
        let lines = account.statement.unwrap_or_default().lines;
        let next = self.first_since(name, lines, period.from).await?;
        let last = match period.to {
            Some(to) => self.first_since(name, lines, Some(to)).await?.max(next) - 1,
            None => lines,
        };
        let carried = Line::carried(name, &account, self.now())?.filter(|_| period.to.is_none());
        let opening = self.balance_behind(name, next - 1).await?;
        let closing = match &carried {
            Some(carried) => carried.balance,
            None => self.balance_behind(name, last).await?,
        };
        let name = name.to_owned();
        Ok(Statement { name, account, opening, closing, bank: self, next, last, carried })
    }

    fn kept_statements(&self) -> Result<&Statements> {
        let domain = self.domain().name().to_owned();
        self.statements().ok_or(BankError::NoStatements { domain })
    }

    /// The number of the first line since a time, or `lines + 1`.
    async fn first_since(&self, name: &str, lines: u64, since: Option<u64>) -> Result<u64> {
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

    async fn balance_behind(&self, name: &str, number: u64) -> Result<i64> {
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
        let kept = self.kept_statements()?;
        let ids = (first..=last).map(|number| Statements::id(name, number));
        let reader = self.domain().reader();
        let reader = if verified { reader.verified() } else { reader };
        let found = reader.get_many(&kept.lines, ids).await?;
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

impl Statement<'_> {
    /// Returns the next lines by time, or `None` at the end.
    ///
    /// Each line has the balance after it.
    ///
    /// # Errors
    /// [`BankError::StatementDamaged`], or an error of the engine. The next call repeats the same
    /// page.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the next call repeats the same page.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Line>>> {
        if self.next > self.last {
            return Ok(self.carried.take().map(|line| vec![line]));
        }
        let last = self.last.min(self.next + PAGE - 1);
        let lines = self.bank.lines(&self.name, self.next, last, true).await?;
        self.next = last + 1;
        Ok(Some(lines))
    }

    /// The currency of the account.
    #[must_use]
    pub fn currency(&self) -> Currency {
        self.account.currency
    }
}
