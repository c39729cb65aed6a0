//! Statements, as they are read.
//!
//! The account is read first, once, from the primary: it has the balance and the number of the last line, which were
//! committed together. The lines up to that number were committed before, and never change. So a statement is what was at that
//! one moment, however many transfers are made while its pages are read, and ends with the balance of the account. Nothing is
//! locked.

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::check_name;
use crate::model::{Account, Currency};
use crate::statements::{Line, Statements};

/// Lines of a page.
const PAGE: u64 = 500;

/// From when to when, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Period {
    /// No line before this time; `None`: from the beginning.
    pub from: Option<u64>,
    /// Only lines before this time; `None`: to the end.
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

/// The statement of an account: its lines are read page by page.
#[derive(Debug)]
#[non_exhaustive]
pub struct Statement<'a> {
    /// Whose.
    pub name: String,
    /// The account, as it was when the statement was begun.
    pub account: Account,
    /// What it held before the first line of the period, in minor units.
    pub opening: i64,
    /// What it held behind the last line of the period: without an end of the period the balance of the account.
    pub closing: i64,
    bank: &'a Bank,
    /// The numbers of the next line and of the last one.
    next: u64,
    last: u64,
    /// What is listed behind it.
    carried: Option<Line>,
}

impl Bank {
    /// From now on keeps a line for every change of every account, in the collection `<domain>-statements`: one document more
    /// for each leg of a transfer. Banks that are opened after this write them; those that are open already do not:
    /// have them opened again. What was changed before, or by one of those, is one line [`Carried`](crate::LineKind::Carried)
    /// in front of the next.
    ///
    /// # Errors
    /// As [`txn_core::Domain::create_collection`].
    pub async fn keep_statements(self) -> Result<Self> {
        let statements = Statements::open(self.domain()).await?;
        Ok(self.with_statements(Some(statements)))
    }

    /// Whether statements are kept.
    #[must_use]
    pub fn keeps_statements(&self) -> bool {
        self.statements().is_some()
    }

    /// The statement of an account, open or closed, as of one moment. Costs one read of the account, a few lines to find the
    /// period, and a request for every 500 lines of it.
    ///
    /// # Errors
    /// [`BankError::NoStatements`], [`BankError::UnknownAccount`], [`BankError::InvalidName`],
    /// [`BankError::StatementDamaged`], or the engine's.
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

    /// The number of the first of so many lines that is not before a time; one more than there are if none is.
    async fn first_since(&self, name: &str, lines: u64, since: Option<u64>) -> Result<u64> {
        let Some(since) = since else { return Ok(1) };
        // The times of an account never go back.
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

    /// Lines by their numbers, from the first to the last; `verified` or as any copy has them.
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
    /// The next lines, by time, each with the balance behind it; `None` behind the last.
    ///
    /// # Errors
    /// [`BankError::StatementDamaged`], or the engine's. The same page is asked for again by the next call.
    ///
    /// # Cancel safety
    /// Dropped, the next call asks for the same page.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Line>>> {
        if self.next > self.last {
            return Ok(self.carried.take().map(|line| vec![line]));
        }
        let last = self.last.min(self.next + PAGE - 1);
        let lines = self.bank.lines(&self.name, self.next, last, true).await?;
        self.next = last + 1;
        Ok(Some(lines))
    }

    /// Of what.
    #[must_use]
    pub fn currency(&self) -> Currency {
        self.account.currency
    }
}
