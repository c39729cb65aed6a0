//! The peer and the bank on real servers, with the same transfers.
//!
//! Both have the same balances at the end. The peer's processes are killed at any step and
//! recovered. One test shows a fault of the peer.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, try_join_all};
use txn_bank::{Bank, Leg, NewAccount};
use txn_benches::seed::{Ended, Fuse, Killed, Peer, Transfer, Way};
use txn_benches::{Failure, unique};
use txn_core::Config;
use txn_es::{EsConfig, EsStore};
use txn_testkit::env;

const BALANCE: i64 = 1_000;

/// The maximum number of requests of a transfer without conflicts.
const STEPS: u32 = 12;

fn accounts() -> Vec<String> {
    (0..6).map(|at| format!("a{at}")).collect()
}

/// Returns the transfers of four processes, the same in each run.
fn transfers() -> Vec<Vec<Transfer>> {
    let (accounts, mut random) = (accounts(), fastrand::Rng::with_seed(7));
    let mut one = |id: String| {
        let from = random.usize(0..accounts.len());
        let to = (from + random.usize(1..accounts.len())) % accounts.len();
        let (from, to) = (accounts[from].clone(), accounts[to].clone());
        Transfer { id, from, to, amount: random.i64(1..9) }
    };
    (0..4).map(|process| (0..20).map(|at| one(format!("t{process}-{at}"))).collect()).collect()
}

async fn balances_of_the_bank(url: &str, name: &str) -> Result<Vec<i64>, Failure> {
    let store = Arc::new(EsStore::connect(EsConfig::from_url(url)?).await?);
    let bank = Bank::create(store, name, Config::default()).await?;
    for account in accounts() {
        bank.open_account(&NewAccount::new(&account, &account, BALANCE, "EUR")?).await?;
    }
    let work = transfers().into_iter().map(|transfers| {
        let bank = bank.clone();
        async move {
            for Transfer { id, from, to, amount } in transfers {
                bank.transfer(Some(&id), &[Leg::new(from, -amount), Leg::new(to, amount)]).await?;
            }
            Ok::<_, Failure>(())
        }
    });
    try_join_all(work).await?;
    bank.domain().barrier(Duration::from_secs(60)).await?.into_result()?;
    let found = bank.accounts(&accounts()).await?;
    assert!(bank.audit(true).await?.is_clean());
    assert!(bank.shutdown(Duration::from_secs(60)).await);
    Ok(found.iter().map(|account| account.balance).collect())
}

/// Runs each transfer in its own process.
///
/// The process may die at any request.
///
/// Returns the number of processes that died.
async fn killed_and_recovered(url: &str, name: &str, way: Way) -> Result<usize, Failure> {
    let mut random = fastrand::Rng::with_seed(11);
    let mut fuses: Vec<Vec<(u32, bool)>> = Vec::new();
    for transfers in transfers() {
        // Some processes survive, because the fuse is longer than the transfer.
        let fuse = |_: &Transfer| (random.u32(0..STEPS + 4), random.bool());
        fuses.push(transfers.iter().map(fuse).collect());
    }
    let work = transfers().into_iter().zip(fuses).map(|(transfers, fuses)| async move {
        let mut killed = Vec::new();
        for (transfer, (answered, sends)) in transfers.into_iter().zip(fuses) {
            let process = Peer::new(url, name, way, Some(Fuse::new(answered, sends)))?;
            match process.transfer(&transfer).await {
                Ok(ended) => assert_eq!(ended, Ended::Finished),
                Err(error) if error.is::<Killed>() => killed.push(transfer),
                Err(error) => return Err(error),
            }
        }
        Ok::<_, Failure>(killed)
    });
    let killed: Vec<Transfer> = try_join_all(work).await?.into_iter().flatten().collect();
    let living = Peer::new(url, name, way, None)?;
    living.recover(Duration::ZERO).await?;
    for transfer in &killed {
        match living.state(&transfer.id).await?.as_deref() {
            Some("finished") => {}
            // With another id, because the old one is used.
            Some("rolled-back") | None => {
                let again = Transfer { id: format!("{}-again", transfer.id), ..transfer.clone() };
                assert_eq!(living.transfer(&again).await?, Ended::Finished);
            }
            state => return Err(format!("{} is {state:?}", transfer.id).into()),
        }
    }
    assert_eq!(living.recover(Duration::ZERO).await?, 0);
    Ok(killed.len())
}

async fn same_balances(url: &str, way: Way) -> Result<(), Failure> {
    let name = unique("seed");
    let peer = Peer::new(url, &name, way, None)?;
    peer.create(&accounts(), BALANCE).await?;
    let killed = killed_and_recovered(url, &name, way).await?;
    let mut balances = Vec::new();
    for account in accounts() {
        let account = peer.account(&account).await?;
        assert_eq!(account.pending_transactions, Vec::<String>::new());
        balances.push(account.balance);
    }
    println!("{killed} of 80 processes of the peer were killed; {balances:?}");
    assert!(killed > 20, "{killed}");
    assert_eq!(balances, balances_of_the_bank(url, &name).await?);
    let much = Transfer { id: "much".into(), from: "a0".into(), to: "a1".into(), amount: 1 << 40 };
    assert_eq!(peer.transfer(&much).await?, Ended::RolledBack);
    assert_eq!(peer.transfer(&much).await?, Ended::Elsewhere, "its id is taken");
    assert_eq!(peer.account("a1").await?.balance, balances[1]);
    peer.remove().await
}

/// Pauses a process before the credit.
///
/// The pause lasts until the recovery takes the process for dead.
async fn a_pause_makes_money(url: &str, way: Way) -> Result<(), Failure> {
    let name = unique("seed-pause");
    let peer = Peer::new(url, &name, way, None)?;
    peer.create(&accounts(), BALANCE).await?;
    let other = Arc::new(Peer::new(url, &name, way, None)?);
    let pause = move |step: &str| -> BoxFuture<'static, ()> {
        let (other, overtakes) = (other.clone(), step == "credit");
        Box::pin(async move {
            if overtakes {
                assert_eq!(other.recover(Duration::ZERO).await.expect("recovers"), 1);
            }
        })
    };
    let transfer = Transfer { id: "t".into(), from: "a0".into(), to: "a1".into(), amount: 5 };
    assert_eq!(peer.transfer_with(&transfer, &pause).await?, Ended::Elsewhere);
    assert_eq!(peer.state("t").await?.as_deref(), Some("rolled-back"));
    let (from, to) = (peer.account("a0").await?, peer.account("a1").await?);
    assert_eq!((from.balance, to.balance), (BALANCE, BALANCE + 5), "five were made");
    assert_eq!(to.pending_transactions, ["t"], "and nothing recovers it");
    peer.remove().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_and_bank_have_equal_balances_on_elasticsearch() {
    same_balances(&env::elasticsearch_url(), Way::Conditions).await.expect("agree");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_and_bank_have_equal_balances_on_opensearch() {
    same_balances(&env::opensearch_url(), OPENSEARCH).await.expect("agree");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_peer_makes_money_on_elasticsearch() {
    a_pause_makes_money(&env::elasticsearch_url(), Way::Conditions).await.expect("is seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_peer_makes_money_on_opensearch() {
    a_pause_makes_money(&env::opensearch_url(), OPENSEARCH).await.expect("is seen");
}

/// How the peer changes documents on OpenSearch.
const OPENSEARCH: Way = Way::Scripts;
