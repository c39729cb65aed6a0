//! The rules of a transfer, as pure functions.

use std::collections::{BTreeMap, BTreeSet};

use base16ct::HexDisplay;
use serde_json::json;
use sha2::{Digest, Sha256};
use txn_outbox::http::HttpRequest;

use crate::error::{BankError, Result};
use crate::input::{Leg, NewAccount, check_key, check_name};
use crate::model::{Account, Currency, Entry};

/// Sums per currency. `i128` holds the sum of all legs that fit into memory.
pub(crate) type Sums = BTreeMap<Currency, i128>;

/// Validates a transfer without reading accounts.
///
/// # Errors
/// [`BankError::InvalidKey`], [`BankError::InvalidName`], [`BankError::ZeroLeg`],
/// [`BankError::DuplicateLeg`], [`BankError::TooFewLegs`].
pub fn check_transfer(key: Option<&str>, legs: &[Leg]) -> Result<()> {
    key.map_or(Ok(()), check_key)?;
    let mut seen = BTreeSet::new();
    for leg in legs {
        check_name(&leg.account)?;
        if leg.amount == 0 {
            return Err(BankError::ZeroLeg(leg.account.clone()));
        }
        if !seen.insert(&leg.account) {
            return Err(BankError::DuplicateLeg(leg.account.clone()));
        }
    }
    match legs.len() {
        few @ 0..2 => Err(BankError::TooFewLegs(few)),
        _ => Ok(()),
    }
}

/// The current accounts and the ledger entries, in leg order.
pub(crate) fn entries(
    legs: &[Leg],
    accounts: Vec<Option<Account>>,
) -> Result<(Vec<Account>, Vec<Entry>)> {
    let mut found = Vec::with_capacity(legs.len());
    for (leg, account) in legs.iter().zip(accounts) {
        let account = account.ok_or_else(|| BankError::UnknownAccount(leg.account.clone()))?;
        if account.closed_at.is_some() {
            return Err(BankError::AccountClosed(leg.account.clone()));
        }
        found.push(account);
    }
    let mut sums = Sums::new();
    let mut entries = Vec::with_capacity(legs.len());
    for (leg, account) in legs.iter().zip(&found) {
        *sums.entry(account.currency).or_default() += i128::from(leg.amount);
        let Leg { account: name, amount } = leg.clone();
        entries.push(Entry { account: name, amount, currency: account.currency });
    }
    if let Some((currency, sum)) = sums.into_iter().find(|(_, sum)| *sum != 0) {
        return Err(BankError::Unbalanced { currency, sum });
    }
    Ok((found, entries))
}

/// The accounts after the transfer and the ledger entries, in leg order.
pub(crate) fn apply(
    legs: &[Leg],
    accounts: Vec<Option<Account>>,
) -> Result<(Vec<Account>, Vec<Entry>)> {
    let (mut found, entries) = entries(legs, accounts)?;
    for (leg, account) in legs.iter().zip(&mut found) {
        let Leg { account: name, amount } = leg.clone();
        let balance = account.balance;
        account.balance = balance.checked_add(amount).ok_or_else(|| BankError::Overflow {
            account: name.clone(),
            balance,
            amount,
        })?;
        if amount < 0 && account.balance < 0 && !account.overdraft {
            let currency = account.currency;
            return Err(BankError::InsufficientFunds { account: name, balance, amount, currency });
        }
    }
    Ok((found, entries))
}

/// A digest of a transfer's extras, constant for its key.
///
/// Extras are the accounts to open, and the HTTP requests.
pub(crate) fn extras(open: &[NewAccount], calls: &[HttpRequest]) -> Result<Option<String>> {
    if open.is_empty() && calls.is_empty() {
        return Ok(None);
    }
    let account =
        |new: &NewAccount| json!([new.name, new.owner, new.deposit, new.currency, new.overdraft]);
    let open: Vec<_> = open.iter().map(account).collect();
    let text = serde_json::to_string(&(open, calls))
        .map_err(|error| BankError::InvalidExtras(error.to_string()))?;
    Ok(Some(format!("{:x}", HexDisplay(&Sha256::digest(text)))))
}

/// Whether a stored transfer has exactly these legs.
pub(crate) fn same_legs(stored: &[Entry], legs: &[Leg]) -> bool {
    let mut stored: Vec<_> = stored.iter().map(|e| (e.account.as_str(), e.amount)).collect();
    let mut asked: Vec<_> = legs.iter().map(|leg| (leg.account.as_str(), leg.amount)).collect();
    stored.sort_unstable();
    asked.sort_unstable();
    stored == asked
}
