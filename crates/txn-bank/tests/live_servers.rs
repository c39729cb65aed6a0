//! The command on real servers, with killed loads and a killed server.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use txn_core::store::{CollectionSpec, Role, Store};
use txn_es::{EsConfig, EsStore};
use txn_testkit::env;
use txn_testkit::servers::{ServerKind, up_private};

/// The bound of a wait that must succeed. Long, because test machines are slow.
const PATIENCE: Duration = Duration::from_secs(600);

/// Makes tests of cases on one server, in a module.
macro_rules! on_server {
    ($server:ident, $url:ident: $($case:ident)*) => {
        mod $server {
            $(#[test] fn $case() { super::$case(&super::env::$url()); })*
        }
    };
}

txn_fixtures::on_alternate_servers! { on_server:
    [
        the_demo_explains_what_it_did
        submitted_transfers_survive_killed_workers
        accounts_are_kept
    ]
    [
        audit_recovers_transactions_of_a_killed_load
        owners_are_derived
    ]
}

/// A domain that no other run uses.
fn domain(what: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros();
    format!("{what}-{now:x}")
}

fn bank(url: &str, domain: &str, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txn-bank"));
    command.args(["--store", url, "--domain", domain]).args(arguments.split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(url: &str, domain: &str, arguments: &str) -> Output {
    bank(url, domain, arguments).output().expect("the command starts")
}

fn succeed(url: &str, domain: &str, arguments: &str) -> String {
    let output = run(url, domain, arguments);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Starts a load that runs until a signal.
fn load(url: &str, domain: &str) -> Child {
    let arguments = "--json load --accounts 10 --legs 3 --workers 8 --seconds 36000";
    bank(url, domain, arguments).spawn().expect("the load starts")
}

/// The number of transfers in the ledger, or 0 if unreadable.
fn transfers(url: &str, domain: &str) -> u64 {
    let output = run(url, domain, "--json audit --no-recover");
    let books: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    books["transfers"].as_u64().unwrap_or_default()
}

/// Waits until a condition holds. Only a fault exceeds the bound.
fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The audit is clean after the recovery of all leftovers.
fn audit(url: &str, domain: &str) {
    wait_until("a clean audit", || run(url, domain, "audit").status.success());
}

fn the_demo_explains_what_it_did(url: &str) {
    let report = succeed(url, &domain("demo"), "demo");
    // The kind of the recovery is random.
    for word in ["kill -9", "Its record says", "no lock is left", "No unit of money"] {
        assert!(report.contains(word), "{word} is not in:\n{report}");
    }
}

fn audit_recovers_transactions_of_a_killed_load(url: &str) {
    let domain = domain("killed");
    let mut load = load(url, &domain);
    // From now on transfers are always under way.
    wait_until("transfers", || transfers(url, &domain) > 0);
    load.kill().expect("it still runs");
    load.wait().expect("it is gone");
    audit(url, &domain);
    let again = succeed(url, &domain, "--json audit --no-recover");
    assert!(again.contains("EUR"), "{again}");
}

#[test]
fn load_continues_after_a_server_crash() {
    let mut server = up_private(ServerKind::Elasticsearch).expect("a server");
    let (url, domain) = (server.url().to_owned(), domain("crash"));
    let load = load(&url, &domain);
    wait_until("transfers", || transfers(&url, &domain) > 0);
    server.nodes()[0].kill().expect("killed");
    // The call returns when the server is healthy.
    server.restart_node(0).expect("it comes back with its data");
    let before = transfers(&url, &domain);
    wait_until("transfers go on", || transfers(&url, &domain) > before.max(1));
    let ended = Command::new("kill").arg(load.id().to_string()).status().expect("kills");
    assert!(ended.success(), "the load ended by itself");
    let output = load.wait_with_output().expect("it ends");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Outcomes that were unknown at the crash may still be unknown.
    assert!(matches!(output.status.code(), Some(0 | 5)), "{}\n{out}\n{err}", output.status);
    let last = out.lines().last().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(last).expect("one JSON object");
    assert!(summary["committed"].as_u64().is_some_and(|n| n > 0), "{summary}");
    println!("{summary}");
    audit(&url, &domain);
}

fn submitted_transfers_survive_killed_workers(url: &str) {
    let domain = domain("submitted");
    succeed(url, &domain, "init");
    succeed(url, &domain, "open alice --owner Alice --balance 100");
    succeed(url, &domain, "open bob --owner Bob");
    for round in 0..3 {
        for at in 0..4 {
            let submit = format!("submit alice:-1 bob:+1 --id r{round}-{at}");
            succeed(url, &domain, &submit);
        }
        let mut worker = bank(url, &domain, "process --seconds 36000").spawn().expect("starts");
        // The first transfer is committed. The state of the rest is random.
        succeed(url, &domain, &format!("wait r{round}-0 --seconds 600"));
        worker.kill().expect("it still runs");
        worker.wait().expect("it is gone");
    }
    // A live worker takes over, after it has observed their death.
    let mut worker = bank(url, &domain, "process --seconds 36000").spawn().expect("starts");
    for key in (0..3).flat_map(|round| (0..4).map(move |at| format!("r{round}-{at}"))) {
        let waited = succeed(url, &domain, &format!("wait {key} --seconds 600"));
        assert!(waited.contains("committed at") || waited.contains("finished at"), "{waited}");
    }
    worker.kill().expect("it still runs");
    worker.wait().expect("it is gone");
    succeed(url, &domain, "reverse r0-0");
    succeed(url, &domain, "process");
    succeed(url, &domain, "wait reverse-r0-0 --seconds 600");
    let alice = succeed(url, &domain, "--json balance alice");
    assert!(alice.contains("\"balance\":89"), "{alice}");
    audit(url, &domain);
}

/// Owners are derived on a server while their worker is killed.
fn owners_are_derived(url: &str) {
    let domain = domain("owners");
    succeed(url, &domain, "init --owners");
    for (name, owner, balance) in [("alice", "Ann", 100), ("savings", "Ann", 50), ("bob", "Ben", 0)]
    {
        succeed(url, &domain, &format!("open {name} --owner {owner} --balance {balance}"));
    }
    let mut worker =
        bank(url, &domain, "derive --seconds 36000").spawn().expect("the worker starts");
    for _ in 0..5 {
        succeed(url, &domain, "transfer alice:-3 bob:+3");
    }
    worker.kill().expect("killed");
    worker.wait().expect("ended");
    succeed(url, &domain, "transfer savings:-5 bob:+5");
    // The shards of the dead worker are free after its lease.
    succeed(url, &domain, "derive");
    let total = |owner: &str| {
        let found = succeed(url, &domain, &format!("--json owner {owner}"));
        let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
        found["totals"][0]["total"].as_i64().expect("a number")
    };
    assert_eq!((total("Ann"), total("Ben")), (130, 20));
    succeed(url, &domain, "rebuild-owners");
    assert_eq!((total("Ann"), total("Ben")), (130, 20));
}

/// Accounts with the mapping of a version without closing and statements.
fn make_old_accounts(url: &str, domain: &str) {
    let mappings = r#"{"dynamic":"strict","properties":{"owner":{"type":"keyword"},"balance":{"type":"long"},"currency":{"type":"keyword"},"overdraft":{"type":"boolean"},"opened_at":{"type":"date","format":"epoch_millis"}}}"#;
    let spec = CollectionSpec {
        name: format!("{domain}-accounts"),
        role: Role::Data { owner: None },
        create: true,
        mappings: Some(mappings.into()),
    };
    let made = async {
        let store = EsStore::connect(EsConfig::from_url(url).expect("a URL")).await;
        store.expect("connects").open_collection(&spec).await
    };
    tokio::runtime::Runtime::new().expect("starts").block_on(made).expect("made");
}

/// Each change of an account is in its statement, with several processes.
///
/// The index is that of an older version. The open adds the mappings of new fields.
fn accounts_are_kept(url: &str) {
    let domain = domain("accounts");
    make_old_accounts(url, &domain);
    let json = |words: &str| -> Vec<serde_json::Value> {
        let out = succeed(url, &domain, &format!("--json {words}"));
        out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    succeed(url, &domain, "init --statements");
    for (name, owner, balance) in [("alice", "Ann", 100), ("savings", "Ann", 50), ("bob", "Ben", 0)]
    {
        succeed(url, &domain, &format!("open {name} --owner {owner} --balance {balance}"));
    }
    succeed(url, &domain, "submit alice:-2 bob:+2 --id tip");
    succeed(url, &domain, "submit savings:-1 alice:+1 --id late");
    let pending = json("pending alice");
    let amounts: Vec<_> = pending.iter().map(|one| one["amount"].clone()).collect();
    assert_eq!(amounts, [-2, 1]);
    let working: Vec<Child> =
        ["transfer alice:-3 bob:+3", "transfer bob:-1 savings:+1 --id one", "process"]
            .iter()
            .map(|words| bank(url, &domain, words).spawn().expect("starts"))
            .collect();
    for mut process in working {
        // The transfer may fail, because Bob may have no money yet.
        process.wait().expect("ends");
    }
    succeed(url, &domain, "transfer alice:-4 dan:+4 --open dan=Ann");
    succeed(url, &domain, "close savings --to bob");
    for name in ["alice", "savings", "bob", "dan"] {
        let statement = json(&format!("statement {name}"));
        let sum: i64 = statement[1..].iter().filter_map(|line| line["amount"].as_i64()).sum();
        assert_eq!(json(&format!("balance {name}"))[0]["balance"], sum, "{statement:?}");
        assert_eq!(statement[0]["closing"], sum);
        let numbers: Vec<_> = statement[1..].iter().filter_map(|l| l["number"].as_u64()).collect();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
    }
    assert!(json("pending alice").is_empty());
    let refused = run(url, &domain, "transfer bob:-1 savings:+1");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && words.contains("is closed"), "{words}");
    let mut names: Vec<String> =
        json("accounts --owner Ann").iter().map(|one| one["account"].to_string()).collect();
    names.sort();
    assert_eq!(names, ["\"alice\"", "\"dan\"", "\"savings\""]);
    let report = json("load --submit --accounts 10 --legs 3 --workers 8 --seconds 3").remove(0);
    println!("{report}");
    assert!(report["accepted"].as_u64() > Some(0), "{report}");
    succeed(url, &domain, "process");
    audit(url, &domain);
    let total: i64 =
        json("statement load-0001")[1..].iter().filter_map(|line| line["amount"].as_i64()).sum();
    assert_eq!(json("balance load-0001")[0]["balance"], total);
}
