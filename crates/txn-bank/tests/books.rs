//! Statements, balances and the ledger agree after concurrent calls of several processes.

use std::sync::Arc;

use proptest::prelude::*;
use txn_bank::{Bank, BankError, NewAccount, Period, TransferOptions};
use txn_core::store::{MemoryStore, Store};
use txn_requests::{RequestError, Requests, RequestsConfig};

use super::common::{PATIENCE, config, legs};

const ACCOUNTS: usize = 5;

/// A call of a process.
#[derive(Clone, Debug)]
enum Act {
    Transfer {
        from: usize,
        to: usize,
        amount: i64,
    },
    /// A transfer that opens an account.
    Open {
        from: usize,
        name: u8,
    },
    Submit {
        from: usize,
        to: usize,
        amount: i64,
        key: u8,
    },
    Process,
    Reverse {
        key: u8,
    },
    Close {
        name: usize,
        to: usize,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let account = 0..ACCOUNTS;
    prop_oneof![
        6 => (account.clone(), account.clone(), 1..60_i64)
            .prop_map(|(from, to, amount)| Act::Transfer { from, to, amount }),
        1 => (account.clone(), 0..4_u8).prop_map(|(from, name)| Act::Open { from, name }),
        4 => (account.clone(), account.clone(), 1..60_i64, 0..8_u8)
            .prop_map(|(from, to, amount, key)| Act::Submit { from, to, amount, key }),
        3 => Just(Act::Process),
        2 => (0..8_u8).prop_map(|key| Act::Reverse { key }),
        1 => (account.clone(), account).prop_map(|(name, to)| Act::Close { name, to }),
    ]
}

fn name(at: usize) -> String {
    format!("a{at}")
}

/// Performs a call. Refusals by the rules of the bank are allowed.
async fn perform(bank: &Bank, requests: &Requests, act: &Act) {
    let pair = |from: &usize, to: &usize, amount: i64| {
        legs(&[(&name(*from), -amount), (&name(*to), amount)])
    };
    let done = match act {
        Act::Transfer { from, to, amount } => {
            bank.transfer(None, &pair(from, to, *amount)).await.map(drop)
        }
        Act::Open { from, name: new } => {
            let new = format!("new{new}");
            let legs = legs(&[(&name(*from), -1), (&new, 1)]);
            let new = NewAccount::new(&new, "late", 0, "EUR").expect("sound");
            let options = TransferOptions::default().with_open([new]);
            bank.transfer_with(None, &legs, &options).await.map(drop)
        }
        Act::Submit { from, to, amount, key } => {
            let legs = pair(from, to, *amount);
            bank.submit(requests, &format!("k{key}"), &legs).await.map(drop)
        }
        Act::Process => requests.process_open(None).await.map(drop).map_err(Into::into),
        Act::Reverse { key } => {
            let key = format!("k{key}");
            bank.reverse(requests, &key, &format!("reverse-{key}")).await.map(drop)
        }
        Act::Close { name: closed, to } => {
            bank.close(&name(*closed), Some(&name(*to))).await.map(drop)
        }
    };
    match done {
        Ok(())
        | Err(
            BankError::DuplicateLeg(_)
            | BankError::InsufficientFunds { .. }
            | BankError::AccountClosed(_)
            | BankError::AccountExists(_)
            | BankError::KeyReused(_),
        ) => {}
        Err(BankError::Request(error)) => match *error {
            RequestError::NotFound(_)
            | RequestError::WrongState { .. }
            | RequestError::AlreadyReversed { .. } => {}
            error => panic!("{act:?}: {error:?}"),
        },
        Err(error) => panic!("{act:?}: {error:?}"),
    }
}

async fn agree(acts: Vec<Vec<Act>>, groups: bool) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let config = config().with_group_commit(Some(groups));
    let first = Bank::create(store.clone(), "bank", config.clone()).await.expect("opens");
    let first = first.keep_statements().await.expect("kept");
    for at in 0..ACCOUNTS {
        let new = NewAccount::new(&name(at), "another", 100, "EUR").expect("sound");
        first.open_account(&new.with_overdraft(at == 0)).await.expect("opens");
    }
    let mut processes = Vec::new();
    for acts in acts {
        let bank = Bank::open(store.clone(), "bank", config.clone()).await.expect("opens");
        let requests = bank.requests(RequestsConfig::default()).await.expect("opens");
        processes.push(tokio::spawn(async move {
            for act in &acts {
                perform(&bank, &requests, act).await;
            }
            assert!(requests.shutdown(PATIENCE).await && bank.shutdown(PATIENCE).await);
        }));
    }
    for process in processes {
        process.await.expect("no panic");
    }
    // The audit compares each line of transfers, deposits, submits, reversals and closings with the
    // ledger.
    let audit = first.audit(true).await.expect("audits");
    assert!(audit.is_clean(), "{:?}", audit.findings);
    let names = (0..ACCOUNTS).map(name).chain((0..4).map(|new| format!("new{new}")));
    let mut listed = 0;
    for name in names {
        let mut statement = match first.statement(&name, Period::default()).await {
            Err(BankError::UnknownAccount(_)) => continue,
            statement => statement.expect("is kept"),
        };
        let mut sum = 0;
        while let Some(page) = statement.next_page().await.expect("reads") {
            sum += page.iter().map(|line| line.amount).sum::<i64>();
            listed += page.iter().filter(|line| line.transfer.is_some()).count();
        }
        assert_eq!((sum, sum), (statement.account.balance, statement.closing), "{name}");
        assert!(statement.account.closed_at.is_none() || sum == 0, "{name}");
    }
    // Each transfer of this test has two legs, and each deposit one.
    assert_eq!(listed, 2 * audit.transfers + audit.deposits);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn statements_match_balances_after_concurrent_calls(
        acts in prop::collection::vec(prop::collection::vec(act(), 1..14), 1..4),
        groups: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("starts").block_on(agree(acts, groups));
    }
}
