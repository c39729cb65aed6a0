//! The statements of a bank.

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::input::check_name;
use crate::statement_lines::line_reader::LineReader;
use crate::statement_lines::statement::{Period, Statement};
use crate::statement_lines::statements::Statements;

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
        let statements = Statements::open(&self.domain).await?;
        Ok(Self { ledger: self.ledger.with_statements(statements), ..self })
    }

    /// Whether the bank keeps statements.
    #[must_use]
    pub fn keeps_statements(&self) -> bool {
        self.ledger.statements().is_some()
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
        let lines = self.line_reader()?;
        let reader = self.domain.reader().verified();
        let account = reader.get(self.ledger.accounts(), name).await?;
        let account = account.ok_or_else(|| BankError::UnknownAccount(name.to_owned()))?;
        Statement::of(lines, name, account, period, self.ledger.now()).await
    }

    fn line_reader(&self) -> Result<LineReader<'_>> {
        let domain = self.domain.name().to_owned();
        let statements = self.ledger.statements().ok_or(BankError::NoStatements { domain })?;
        Ok(LineReader::new(&self.domain, statements))
    }
}
