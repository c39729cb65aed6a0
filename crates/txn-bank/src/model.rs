//! The stored documents of the bank: accounts and transfers.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// A currency: three capital letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency(pub(crate) [u8; 3]);

impl Currency {
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

/// A stored account. The id of its document is its name.
///
/// Fields of other programs keep their bytes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeMap<String, Box<RawValue>>")]
pub struct Account {
    /// The name of the customer who owns the account.
    pub owner: String,
    /// The balance in minor units (cents).
    pub balance: i64,
    /// The currency of the balance.
    pub currency: Currency,
    /// Whether the balance may fall below zero.
    pub overdraft: bool,
    /// The time of the opening, in milliseconds since the Unix epoch.
    pub opened_at: u64,
    /// The time of the closing in milliseconds since the Unix epoch. `None` while open.
    pub closed_at: Option<u64>,
    /// The end of the statement, if the bank keeps statements.
    pub(crate) statement: Option<StatementEnd>,
    pub(crate) rest: Rest,
}

/// The end of an account's statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatementEnd {
    /// The number of the last line, or 0.
    pub(crate) lines: u64,
    /// The balance after the last line.
    pub(crate) balance: i64,
    /// The time of the last line, in milliseconds since the Unix epoch. No later line is earlier.
    pub(crate) at: u64,
}

/// The fields of an account that the bank does not know.
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
        if let Some(closed_at) = self.closed_at {
            map.serialize_entry("closed_at", &closed_at)?;
        }
        if let Some(statement) = &self.statement {
            map.serialize_entry("statement", statement)?;
        }
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
            closed_at: field(fields.remove("closed_at"))?,
            statement: field(fields.remove("statement"))?,
            rest: Rest(fields),
        })
    }
}

/// The kind of a stored transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The opening balance of an account. No other kind brings money in.
    Deposit,
    /// A transfer between accounts.
    Transfer,
}

/// A leg of a stored transfer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// The name of the account.
    pub account: String,
    /// The amount in minor units. A negative amount left the account.
    pub amount: i64,
    /// The currency of the account.
    pub currency: Currency,
}

/// A stored transfer. The id of its document is its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The kind: a transfer or an opening deposit.
    pub kind: Kind,
    /// The key of the transfer. Money moves once per key.
    pub key: String,
    /// The legs, by account.
    pub legs: Vec<Entry>,
    /// The time of the transfer, in milliseconds since the Unix epoch.
    pub created_at: u64,
    /// A digest of the HTTP requests and accounts to open, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extras: Option<String>,
}

/// The prefix of the keys of opening deposits.
pub(crate) const DEPOSIT: &str = "open:";

/// The prefix of the keys of transfers that empty a closed account.
pub(crate) const CLOSING: &str = "close:";
