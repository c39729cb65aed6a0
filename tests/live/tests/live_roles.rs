//! Privileges on the server with users.
//!
//! The documented roles suffice, and a role for another purpose gives no access.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use tokio::sync::Mutex;
use txn_core::store::{Key, Outcome, Read, RefusalKind, Store, StoreErrorKind, Write, WriteOp};
use txn_core::{Domain, ErrorKind, Options};
use txn_es::EsStore;
use txn_fixtures::bank::{self, Accounts};
use txn_fixtures::fixture::{Fixture, PATIENCE};
use txn_fixtures::secured::{config, plain};
use txn_testkit::env;

/// Lets only one test at a time use the names. The role file fixes the names.
static NAMES: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

const ACCOUNTS: &str = "secured-accounts";

async fn store(user: &str) -> Arc<EsStore> {
    let secured = env::secured().as_user(user);
    Arc::new(EsStore::connect(config(&secured)).await.expect("a login that is taken"))
}

/// Returns the superuser's fixture, without leftovers of an earlier run.
async fn cleared() -> Fixture {
    let secured = env::secured();
    let fixture = Fixture::with(plain(&secured), config(&secured)).await;
    fixture.drop_domain("secured").await;
    fixture.drop_domain("secured-eu").await;
    // The name does not begin with the name of the domain.
    if let Ok(europe) = fixture.store.identify("europe-accounts").await {
        let claim = format!("/txn-registry/_doc/collection:{}", europe.uid);
        fixture.plain.text("DELETE", &claim, None).await;
        fixture.store.drop_collection("europe-accounts").await.expect("dropped");
    }
    fixture
}

async fn opened(user: &str, domain: &str, index: &str) -> (Domain, Accounts) {
    let domain = Domain::open_or_create(store(user).await, domain, Fixture::config()).await;
    let domain = domain.expect("the documented role makes a domain");
    let accounts = bank::open(&domain, index).await;
    (domain, accounts)
}

/// Creates two accounts of the domain `secured`.
///
/// The user of the domain's role creates the accounts.
async fn funded() -> (Fixture, Domain) {
    let fixture = cleared().await;
    let (domain, accounts) = opened("secured", "secured", ACCOUNTS).await;
    bank::fund(&domain, &accounts, &bank::names(2), 10).await;
    (fixture, domain)
}

/// Returns the aliases of an index, except public ones.
async fn identity_alias(fixture: &Fixture, index: &str) -> String {
    let answer = fixture.plain.ok("GET", &format!("/{index}/_alias"), None).await;
    let aliases = answer[index]["aliases"].as_object().expect("aliases").keys();
    let mut identities = aliases.filter(|alias| alias.starts_with(&format!("{index}-txn-")));
    identities.next().expect("an identity alias").clone()
}

/// Checks that a plain client cannot access an index in any way.
async fn is_shut_out(user: &str, names: &[&str]) {
    let client = plain(&env::secured().as_user(user));
    for name in names {
        let update = json!({"update": {"_index": name, "_id": "a0", "_source": true}});
        let bulk = format!("{update}\n{{\"doc\":{{\"balance\":99}}}}\n");
        let (status, text) = client.text("POST", "/_bulk", Some(bulk)).await;
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let refused = answer["items"][0]["update"]["status"] == 403;
        assert!(status == 403 || refused, "{user} wrote to {name}: {status} {text}");
        for path in [format!("/{name}/_search"), format!("/{name}/_doc/a0")] {
            let (status, text) = client.text("GET", &path, None).await;
            assert_eq!(status, 403, "{user} read {path}: {text}");
        }
    }
}

#[tokio::test]
async fn documented_role_carries_transactions() {
    let _names = NAMES.lock().await;
    let fixture = cleared().await;
    let (domain, accounts) = opened("secured", "secured", ACCOUNTS).await;
    let names = bank::names(3);
    bank::fund(&domain, &accounts, &names, 10).await;
    bank::spread(&domain, &accounts, &names, &Options::default()).await.expect("moves");
    assert_eq!(bank::balances(&domain, &accounts, &names).await, [Some(8), Some(11), Some(11)]);
    let report = domain.admin().janitor_pass().await.expect("the janitor may do its work");
    assert!(report.is_clean(), "{report:?}");
    // A second process opens the existing domain, and can remove it, too.
    let (again, _) = opened("secured", "secured", ACCOUNTS).await;
    assert!(again.shutdown(PATIENCE).await);
    domain.admin().remove().await.expect("the documented role removes a domain");
    let (status, text) = fixture.plain.text("GET", "/txn-secured-*", None).await;
    assert_eq!((status, &*text), (200, "{}"), "the table is gone");
    let aliases = fixture.plain.ok("GET", &format!("/{ACCOUNTS}/_alias"), None).await;
    assert_eq!(aliases[ACCOUNTS]["aliases"], json!({}), "nothing of the library is left");
    cleared().await;
}

#[tokio::test]
async fn role_of_one_domain_opens_no_other() {
    let _names = NAMES.lock().await;
    let (fixture, domain) = funded().await;
    let (europe, accounts) = opened("secured-eu", "secured-eu", "europe-accounts").await;
    bank::fund(&europe, &accounts, &bank::names(2), 10).await;

    for (user, other, index) in
        [("secured-eu", "secured", ACCOUNTS), ("secured", "secured-eu", "europe-accounts")]
    {
        let error = Domain::open(store(user).await, other, Fixture::config()).await;
        let error = error.expect_err("a domain that the role is not for");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        let table = format!("txn-{}", other.replace('-', "."));
        let partitions = fixture.plain.ok("GET", &format!("/{table}-*/_alias"), None).await;
        let partitions = partitions.as_object().expect("indices");
        assert!(partitions.len() >= 2, "today and tomorrow");
        let mut names = vec![index.to_owned(), identity_alias(&fixture, index).await];
        for (partition, about) in partitions {
            names.push(partition.clone());
            names.extend(about["aliases"].as_object().expect("aliases").keys().cloned());
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        is_shut_out(user, &names).await;
    }
    for domain in [domain, europe] {
        assert!(domain.shutdown(PATIENCE).await);
    }
    cleared().await;
}

#[tokio::test]
async fn rights_on_the_tables_open_no_index() {
    let _names = NAMES.lock().await;
    let (fixture, domain) = funded().await;
    let alias = identity_alias(&fixture, ACCOUNTS).await;
    is_shut_out("tables", &[ACCOUNTS, &alias]).await;
    assert!(fixture.plain.source(ACCOUNTS, "a0").await.is_some());
    let store = store("tables").await;
    let read = store.get_many(&[Key::new(ACCOUNTS, "a0")]).await.remove(0);
    let Read::Unavailable(error) = read else { panic!("{read:?}") };
    assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    assert!(domain.shutdown(PATIENCE).await);
    cleared().await;
}

#[tokio::test]
async fn read_privilege_allows_no_writes() {
    let _names = NAMES.lock().await;
    let (fixture, domain) = funded().await;
    let key = Key::new(ACCOUNTS, "a0");
    let before = fixture.plain.source(ACCOUNTS, "a0").await;
    let get = async |store: &EsStore| store.get_many(std::slice::from_ref(&key)).await.remove(0);
    let reader = store("reader").await;
    let read = get(&reader).await;
    let Read::Found { version, .. } = read else { panic!("{read:?}") };
    let write = Write::new(key.clone(), WriteOp::Replace("{}".into(), version));
    let outcome = reader.write_many(&[write]).await.remove(0);
    let Outcome::Invalid(refusal) = outcome else { panic!("{outcome:?}") };
    assert_eq!(refusal.kind, RefusalKind::Denied, "{refusal:?}");
    // Every operation goes through the alias, even for an index that the role names.
    let of_reader = reader.read_primary(std::slice::from_ref(&key)).await.remove(0);
    for read in [of_reader, get(&*store("writer").await).await] {
        let Read::Unavailable(error) = read else { panic!("{read:?}") };
        assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    }
    assert_eq!(fixture.plain.source(ACCOUNTS, "a0").await, before);
    assert!(domain.shutdown(PATIENCE).await);
    cleared().await;
}

#[tokio::test]
async fn missing_right_on_the_alias_is_named() {
    let _names = NAMES.lock().await;
    let fixture = cleared().await;
    fixture.plain.make(ACCOUNTS, &json!({})).await;
    let spec = txn_core::store::CollectionSpec {
        name: ACCOUNTS.to_owned(),
        role: txn_core::store::Role::Data { owner: Some("secured".to_owned()) },
        create: false,
        mappings: None,
    };
    let error = store("writer").await.open_collection(&spec).await.expect_err("no alias");
    assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    for word in ["manage", "secured-accounts-txn-*"] {
        assert!(error.message.contains(word), "{error}");
    }
    cleared().await;
}
