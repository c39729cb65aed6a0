//! What the bank stores: accounts and transfers.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::{BankError, Result};

/// A currency: three capital letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency([u8; 3]);

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

    /// The code.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("???")
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.as_str().to_owned()
    }
}

impl TryFrom<String> for Currency {
    type Error = BankError;

    fn try_from(code: String) -> Result<Self> {
        Self::new(&code)
    }
}

/// A stored account. The id of its document is its name. Fields that others keep beside those of the bank come back
/// with the bytes that they have.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeMap<String, Box<RawValue>>")]
pub struct Account {
    /// Whose it is.
    pub owner: String,
    /// What it holds, in minor units (cents).
    pub balance: i64,
    /// Of what.
    pub currency: Currency,
    /// Whether the balance may fall below zero.
    pub overdraft: bool,
    /// When it was opened, in milliseconds since the Unix epoch.
    pub opened_at: u64,
    pub(crate) rest: Rest,
}

/// The fields of an account that the bank knows nothing of.
#[derive(Clone, Default)]
pub(crate) struct Rest(BTreeMap<String, Box<RawValue>>);

impl PartialEq for Rest {
    fn eq(&self, other: &Self) -> bool {
        let fields = |rest: &Self| -> Vec<(String, String)> {
            rest.0.iter().map(|(name, value)| (name.clone(), value.get().to_owned())).collect()
        };
        fields(self) == fields(other)
    }
}

impl Eq for Rest {}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Serialize for Account {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("owner", &self.owner)?;
        map.serialize_entry("balance", &self.balance)?;
        map.serialize_entry("currency", &self.currency)?;
        map.serialize_entry("overdraft", &self.overdraft)?;
        map.serialize_entry("opened_at", &self.opened_at)?;
        for (name, value) in &self.rest.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl TryFrom<BTreeMap<String, Box<RawValue>>> for Account {
    type Error = serde_json::Error;

    fn try_from(mut fields: BTreeMap<String, Box<RawValue>>) -> Result<Self, serde_json::Error> {
        fn field<T: DeserializeOwned>(
            value: Option<Box<RawValue>>,
        ) -> Result<T, serde_json::Error> {
            serde_json::from_str(value.as_deref().map_or("null", RawValue::get))
        }
        Ok(Self {
            owner: field(fields.remove("owner"))?,
            balance: field(fields.remove("balance"))?,
            currency: field(fields.remove("currency"))?,
            overdraft: fields.remove("overdraft").map_or(Ok(false), |value| field(Some(value)))?,
            opened_at: field(fields.remove("opened_at"))?,
            rest: Rest(fields),
        })
    }
}

/// What a document of the transfers collection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The opening balance of an account: the only way by which money comes in.
    Deposit,
    /// A transfer between accounts.
    Transfer,
}

/// One line of a stored transfer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// The account.
    pub account: String,
    /// What it got, in minor units; negative: what it gave.
    pub amount: i64,
    /// Of what: the currency of the account.
    pub currency: Currency,
}

/// A stored transfer. The id of its document is its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Whether it is a transfer or an opening deposit.
    pub kind: Kind,
    /// The key under which it was made; money moves once under one key.
    pub key: String,
    /// Its legs, by account.
    pub legs: Vec<Entry>,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at: u64,
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
        if owner.trim().is_empty()
            || owner.chars().count() > 200
            || owner.chars().any(char::is_control)
        {
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

/// What the keys of opening deposits begin with.
pub(crate) const DEPOSIT: &str = "open:";

pub(crate) fn check_key(key: &str) -> Result<()> {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if key.is_empty() || key.len() > 128 || key.contains(odd) || key.starts_with(DEPOSIT) {
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
