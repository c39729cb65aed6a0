//! Input of the bank, validated before the first request to the store.

use txn_lock::name;

use crate::error::{BankError, Result};
use crate::model::{CLOSING, Currency, DEPOSIT};

impl Currency {
    /// Parses the code of a currency.
    ///
    /// # Errors
    /// [`BankError::InvalidCurrency`] unless the code has three capital letters.
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

/// A leg of a new transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The name of the account.
    pub account: String,
    /// The amount in minor units. A negative amount leaves the account.
    pub amount: i64,
}

impl Leg {
    /// Creates a leg. The transfer validates it.
    pub fn new(account: impl Into<String>, amount: i64) -> Self {
        Self { account: account.into(), amount }
    }

    /// Parses a leg, such as `alice:-30`.
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

/// Parses an integer of minor units.
///
/// # Errors
/// [`BankError::AmountTooLarge`] if the number does not fit, [`BankError::InvalidLeg`] if the text
/// is not a number.
pub fn parse_amount(text: &str) -> Result<i64> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
        PosOverflow | NegOverflow => BankError::AmountTooLarge(shortened(text)),
        _ => BankError::InvalidLeg(shortened(text)),
    })
}

/// The values with which an account is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAccount {
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) deposit: i64,
    pub(crate) currency: Currency,
    pub(crate) overdraft: bool,
}

impl NewAccount {
    /// Creates an account with an opening balance in minor units, without overdraft.
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

    /// Sets whether the balance may fall below zero.
    #[must_use]
    pub fn with_overdraft(mut self, overdraft: bool) -> Self {
        self.overdraft = overdraft;
        self
    }

    /// The name of the account.
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

/// Shortens input that an error repeats.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
