//! What the bank is asked for, checked before anything is sent.

use txn_lock::name;

use crate::error::{BankError, Result};
use crate::model::{CLOSING, Currency, DEPOSIT};

impl Currency {
    /// The currency of that code.
    ///
    /// # Errors
    /// [`BankError::InvalidCurrency`] unless it is three capital letters.
    pub fn new(code: &str) -> Result<Self> {
        match code.as_bytes() {
            &[a, b, c] if [a, b, c].iter().all(u8::is_ascii_uppercase) => Ok(Self([a, b, c])),
            _ => Err(BankError::InvalidCurrency(shortened(code))),
        }
    }
}

impl TryFrom<String> for Currency {
    type Error = BankError;

    fn try_from(code: String) -> Result<Self> {
        Self::new(&code)
    }
}

/// One leg of a transfer that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The account.
    pub account: String,
    /// What it gets, in minor units; negative: what it gives.
    pub amount: i64,
}

impl Leg {
    /// A leg. It is checked when the transfer is made.
    pub fn new(account: impl Into<String>, amount: i64) -> Self {
        Self { account: account.into(), amount }
    }

    /// A leg from its text, such as `alice:-30`.
    ///
    /// # Errors
    /// [`BankError::InvalidLeg`], [`BankError::InvalidName`], [`BankError::AmountTooLarge`].
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = || BankError::InvalidLeg(shortened(text));
        let (account, amount) = text.rsplit_once(':').ok_or_else(invalid)?;
        let amount = parse_amount(amount).map_err(|error| match error {
            BankError::InvalidLeg(_) => invalid(),
            error => error,
        })?;
        check_name(account)?;
        Ok(Self::new(account, amount))
    }
}

/// A whole number of minor units.
///
/// # Errors
/// [`BankError::AmountTooLarge`] if it does not fit, [`BankError::InvalidLeg`] if it is no number.
pub fn parse_amount(text: &str) -> Result<i64> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
        PosOverflow | NegOverflow => BankError::AmountTooLarge(shortened(text)),
        _ => BankError::InvalidLeg(shortened(text)),
    })
}

/// An account that is to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAccount {
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) deposit: i64,
    pub(crate) currency: Currency,
    pub(crate) overdraft: bool,
}

impl NewAccount {
    /// An account with its opening balance in minor units, and no overdraft.
    ///
    /// # Errors
    /// [`BankError::InvalidName`], [`BankError::InvalidOwner`], [`BankError::InvalidCurrency`],
    /// [`BankError::NegativeDeposit`].
    pub fn new(name: &str, owner: &str, deposit: i64, currency: &str) -> Result<Self> {
        check_name(name)?;
        if owner.trim().is_empty() || owner.chars().count() > 200 || owner.contains(name::is_odd) {
            return Err(BankError::InvalidOwner);
        }
        if deposit < 0 {
            return Err(BankError::NegativeDeposit(deposit));
        }
        let currency = Currency::new(currency)?;
        let (name, owner) = (name.to_owned(), owner.to_owned());
        Ok(Self { name, owner, deposit, currency, overdraft: false })
    }

    /// Whether the balance may fall below zero.
    #[must_use]
    pub fn with_overdraft(mut self, overdraft: bool) -> Self {
        self.overdraft = overdraft;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

pub(crate) fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_alphanumeric() || "-_.@".contains(c);
    if name.starts_with(char::is_alphanumeric)
        && name.chars().all(plain)
        && name.chars().count() <= 64
    {
        return Ok(());
    }
    Err(BankError::InvalidName(shortened(name)))
}

pub(crate) fn check_key(key: &str) -> Result<()> {
    let odd = |c: char| c.is_whitespace() || name::is_odd(c);
    let is_ours = key.starts_with(DEPOSIT) || key.starts_with(CLOSING);
    if key.is_empty() || key.len() > 128 || key.contains(odd) || is_ours {
        return Err(BankError::InvalidKey(shortened(key)));
    }
    Ok(())
}

/// Input that is repeated in an error stays one short line.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
