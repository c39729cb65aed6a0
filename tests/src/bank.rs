//! Accounts and transfers, the load of most suites.

use serde::{Deserialize, Serialize};
use txn_core::{Collection, Domain, Error, Options, Typed};

/// The content of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// What there is.
    pub balance: i64,
}

/// A collection of accounts.
pub type Accounts = Collection<Typed<Account>>;

/// Its mappings.
pub const MAPPINGS: &str = r#"{"properties":{"balance":{"type":"long"}}}"#;

/// An account with a balance.
#[must_use]
pub fn account(balance: i64) -> Account {
    Account { balance }
}

/// Opens a collection of accounts, and makes it if it is missing.
///
/// # Panics
/// If that fails.
pub async fn open(domain: &Domain, name: &str) -> Accounts {
    domain.create_collection(name, Some(MAPPINGS)).await.expect("opens")
}

/// The names of the first accounts: `a0`, `a1`, ...
#[must_use]
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("a{n}")).collect()
}

/// Inserts accounts in one transaction, and waits until they are applied.
///
/// # Panics
/// If that fails.
pub async fn fund(domain: &Domain, accounts: &Accounts, names: &[String], balance: i64) {
    let options = Options::default().with_acknowledge(txn_core::Acknowledge::Applied);
    domain
        .run::<_, Error, _>(&options, async |tx| {
            for name in names {
                tx.insert(accounts, name.as_str(), &account(balance))?;
            }
            Ok(())
        })
        .await
        .expect("inserts");
}

/// Moves one unit from the first account to each of the others.
///
/// # Errors
/// As the engine says.
pub async fn spread(
    domain: &Domain,
    accounts: &Accounts,
    names: &[String],
    options: &Options,
) -> Result<txn_core::Receipt, Error> {
    let committed = domain
        .run::<_, Error, _>(options, async |tx| {
            let ids = names.iter().map(String::as_str);
            let found = tx.get_many(accounts, ids).await?;
            let others = i64::try_from(names.len() - 1).expect("a few");
            for (index, (name, found)) in names.iter().zip(found).enumerate() {
                let Account { balance } = found.expect("exists");
                let balance = if index == 0 { balance - others } else { balance + 1 };
                tx.put(accounts, name.as_str(), &account(balance))?;
            }
            Ok(())
        })
        .await?;
    Ok(committed.receipt)
}

/// The balances, read one by one from the primaries.
///
/// # Panics
/// If the store does not answer.
pub async fn balances(domain: &Domain, accounts: &Accounts, names: &[String]) -> Vec<Option<i64>> {
    let ids = names.iter().map(String::as_str);
    let found = domain.reader().verified().get_many(accounts, ids).await.expect("reads");
    found.into_iter().map(|account| account.map(|account| account.balance)).collect()
}

/// The sum of all balances; missing accounts count nothing.
///
/// # Panics
/// If the store does not answer.
pub async fn sum(domain: &Domain, accounts: &Accounts, names: &[String]) -> i64 {
    balances(domain, accounts, names).await.into_iter().flatten().sum()
}
