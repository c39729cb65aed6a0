//! A server with TLS and users: errors explain wrong logins and certificates.
//!
//! No error contains a secret.

mod live_roles;

use txn_core::store::{StoreError, StoreErrorKind};
use txn_core::{Error, ErrorKind, Options, WaitFor};
use txn_es::{EsConfig, EsStore};
use txn_fixtures::bank::{self, account};
use txn_fixtures::fixture::Fixture;
use txn_fixtures::secured::{self, authority};
use txn_testkit::env::{self, Secured};

const WRONG: &str = "hunter2-is-not-it";

fn bare(secured: &Secured) -> EsConfig {
    EsConfig::from_url(&secured.url).expect("an address")
}

fn trusting(secured: &Secured) -> EsConfig {
    bare(secured).with_certificate_authority(authority(secured))
}

async fn refused(config: EsConfig, secrets: &[&str]) -> StoreError {
    let printed = format!("{config:?} {config:#?}");
    let error = EsStore::connect(config).await.expect_err("it may not connect");
    let engines = Error::from(error.clone());
    assert_eq!(engines.kind(), ErrorKind::Misconfigured, "{engines}");
    for secret in secrets {
        for text in
            [printed.clone(), format!("{error} {error:?}"), format!("{engines} {engines:?}")]
        {
            assert!(!text.contains(secret), "a secret is printed");
        }
    }
    error
}

#[tokio::test]
async fn transactions_over_tls_with_a_login() {
    let secured = env::secured();
    let password = secured.password.expose();
    let fixture = Fixture::with(secured::plain(&secured), secured::config(&secured)).await;
    let domain = fixture.domain().await;
    let printed = format!("{domain:?} {:?} {:#?}", fixture.store, fixture.store);
    assert!(!printed.contains(password), "a secret is printed");
    let accounts = bank::open(&domain, &fixture.name("accounts")).await;
    let names = bank::names(3);
    bank::fund(&domain, &accounts, &names, 10).await;
    let options = Options::default().with_wait_for(WaitFor::Refresh);
    let receipt = bank::spread(&domain, &accounts, &names, &options).await.expect("moves");
    assert!(receipt.applied);
    domain
        .transact::<_, Error, _>(async |tx| {
            tx.delete(&accounts, "a2")?;
            tx.put(&accounts, "a0", &account(8 + 11))
        })
        .await
        .expect("moves");
    let expected = [Some(19), Some(11), None];
    assert_eq!(bank::balances(&domain, &accounts, &names).await, expected);
    fixture.settle(&domain).await;
    fixture.clear().await;
}

#[tokio::test]
async fn wrong_logins() {
    let secured = env::secured();
    let password = secured.password.expose();
    let stranger = refused(trusting(&secured), &[]).await;
    assert_eq!(stranger.kind, StoreErrorKind::Denied, "{stranger}");
    let wrong = trusting(&secured).with_basic_auth(&secured.username, WRONG);
    let wrong = refused(wrong, &[WRONG]).await;
    assert_eq!(wrong.kind, StoreErrorKind::Denied, "{wrong}");
    let stranger = trusting(&secured).with_basic_auth("stranger", password);
    let stranger = refused(stranger, &[password]).await;
    assert_eq!(stranger.kind, StoreErrorKind::Denied, "{stranger}");
    // The format of an API key: base64 of `id:key`.
    let key = "c3RyYW5nZXI6aHVudGVyMi1pcy1ub3QtaXQ=";
    let key_error = refused(trusting(&secured).with_api_key(key), &[key, WRONG]).await;
    assert_eq!(key_error.kind, StoreErrorKind::Denied, "{key_error}");
    // In the address, as people often write it.
    let address = secured.url.replace("://", &format!("://{}:{WRONG}@", secured.username));
    let config = EsConfig::from_url(&address).expect("an address");
    let config = config.with_certificate_authority(authority(&secured));
    let in_address = refused(config, &[WRONG]).await;
    assert_eq!(in_address.kind, StoreErrorKind::Denied, "{in_address}");
}

#[tokio::test]
async fn untrusted_certificates_are_refused() {
    let secured = env::secured();
    let password = secured.password.expose();
    let untrusted = bare(&secured).with_basic_auth(&secured.username, password);
    let error = refused(untrusted, &[password]).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    assert!(error.message.contains("certificate"), "{error}");
    let garbage = bare(&secured)
        .with_basic_auth(&secured.username, password)
        .with_certificate_authority("no certificate at all");
    let error = refused(garbage, &[password]).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    // Without TLS, to a server that requires it.
    let address = secured.url.replace("https://", "http://");
    let config = EsConfig::from_url(&address).expect("an address");
    let config = config.with_basic_auth(&secured.username, password);
    let error = EsStore::connect(config).await.expect_err("it speaks TLS");
    assert!(!format!("{error} {error:?}").contains(password), "a secret is printed");
    assert!(
        matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::Misconfigured),
        "{error}"
    );
}
