//! Authentication: fixed and changing logins, signatures, headers, prefixes.

use async_trait::async_trait;
use futures::future::join_all;
use parking_lot::Mutex;
use secrecy::SecretString;

use super::fake::{Fake, Received};
use super::*;
use crate::config::{CredentialProvider, EsAuth, RequestSigner, UnsignedRequest};

const REFUSED: &str = r#"{"error":{"type":"security_exception","reason":"unable to authenticate user [u] for REST request [/_bulk]"},"status":401}"#;

/// A server that accepts one login at a time, and counts refusals.
struct Guardian {
    server: Fake,
    takes: Arc<Mutex<String>>,
    refused: Arc<AtomicUsize>,
}

impl Guardian {
    async fn start(login: &str) -> Self {
        let takes = Arc::new(Mutex::new(login.to_owned()));
        let refused = Arc::new(AtomicUsize::new(0));
        let (login, count) = (takes.clone(), refused.clone());
        let server = Fake::start(move |request: &Received| {
            if request.header("authorization") == Some(&*login.lock()) {
                return Some((200, "{}".to_owned()));
            }
            count.fetch_add(1, Ordering::SeqCst);
            Some((401, REFUSED.to_owned()))
        })
        .await;
        Self { server, takes, refused }
    }
}

/// Provides a token, which a test can change, and counts its calls.
#[derive(Debug, Default)]
struct Vault {
    token: Mutex<String>,
    asked: AtomicUsize,
}

#[async_trait]
impl CredentialProvider for Vault {
    async fn credentials(&self) -> Result<EsAuth, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        match &**self.token.lock() {
            "" => Err(StoreError::new(StoreErrorKind::Unavailable, "the vault is sealed")),
            token => Ok(EsAuth::bearer(token)),
        }
    }
}

fn transport(config: EsConfig) -> Transport {
    Transport::new(&config).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_login_is_fetched_again() {
    let guardian = Guardian::start("Bearer first").await;
    let vault = Arc::new(Vault { token: Mutex::new("first".to_owned()), ..Vault::default() });
    let config = EsConfig::from_url(&guardian.server.url).unwrap();
    let transport = transport(config.with_credentials(vault.clone()));
    let load = || join_all((0..32).map(|_| transport.send(write())));
    for answer in load().await {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(vault.asked.load(Ordering::SeqCst), 1, "asked once for all");
    for (n, token) in ["second", "third"].into_iter().enumerate() {
        *guardian.takes.lock() = format!("Bearer {token}");
        *vault.token.lock() = token.to_owned();
        for answer in load().await {
            assert_eq!(answer.unwrap().status, 200, "a refused request is sent again");
        }
        assert_eq!(vault.asked.load(Ordering::SeqCst), n + 2, "asked once for all");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn login_that_stays_refused_is_reported() {
    let guardian = Guardian::start("Bearer right").await;
    let vault = Arc::new(Vault { token: Mutex::new("wrong".to_owned()), ..Vault::default() });
    let config = EsConfig::from_url(&guardian.server.url).unwrap();
    let transport = transport(config.with_credentials(vault.clone()));
    for answer in join_all((0..16).map(|_| transport.send(write()))).await {
        assert_eq!(answer.unwrap().status, 401);
    }
    assert_eq!(guardian.refused.load(Ordering::SeqCst), 16, "nothing was sent a second time");
    // A provider that cannot answer: nothing was sent, and a retry may succeed.
    let sealed = Arc::new(Vault::default());
    let config = EsConfig::from_url(&guardian.server.url).unwrap();
    let transport = Transport::new(&config.with_credentials(sealed)).unwrap();
    let failure = transport.send(write()).await.unwrap_err();
    let Failure::NotSent(error) = failure else { panic!("{failure:?}") };
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.message.contains("the vault is sealed"), "{error}");
}

#[tokio::test]
async fn prefixes_headers_and_tokens_are_sent() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let server = Fake::start(move |request: &Received| {
        let of = |name| request.header(name).unwrap_or_default().to_owned();
        let Received { method, path, .. } = request;
        log.lock().push(format!("{method} {path} {} {}", of("authorization"), of("x-gateway-key")));
        Some((200, "{}".to_owned()))
    })
    .await;
    for (prefix, path) in [("", "/_bulk"), ("/", "/_bulk"), ("/es/a%20b/", "/es/a%20b/_bulk")] {
        let config = EsConfig::from_url(&format!("{}{prefix}", server.url)).unwrap();
        let config = config.with_bearer_token("AAEAAWVs").with_header("X-Gateway-Key", "k1");
        let transport = Transport::new(&config).unwrap();
        let query = [("pipeline", "_none")];
        transport.send(Request { query: &query, ..write() }).await.unwrap();
        let line = seen.lock().pop().unwrap();
        assert_eq!(line, format!("POST {path}?pipeline=_none Bearer AAEAAWVs k1"));
    }
    for (name, value) in [("host", "x"), ("a b", "x"), ("x-key", "hunter2\n")] {
        let config = EsConfig::from_url(&server.url).unwrap().with_header(name, value);
        let error = Transport::new(&config).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{name}");
        assert!(!error.message.contains("hunter2"), "{error}");
    }
}

/// Signs with a count, and records the requests.
#[derive(Debug, Default)]
struct Notary {
    shown: Mutex<Vec<String>>,
    epoch: AtomicUsize,
}

#[async_trait]
impl RequestSigner for Notary {
    async fn sign(
        &self,
        request: UnsignedRequest<'_>,
    ) -> Result<Vec<(String, SecretString)>, StoreError> {
        let UnsignedRequest { method, url, headers, body } = request;
        let kind = headers.iter().find(|(name, _)| *name == "content-type");
        let kind = kind.map_or("", |(_, value)| value);
        let path = url.splitn(4, '/').nth(3).unwrap_or_default();
        let body = String::from_utf8_lossy(body);
        self.shown.lock().push(format!("{method} /{path} {kind} {body}"));
        let epoch = self.epoch.load(Ordering::SeqCst);
        Ok(vec![("authorization".to_owned(), format!("Signed-{epoch}").into())])
    }

    async fn refused(&self) {
        self.epoch.store(2, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn each_request_is_signed() {
    let guardian = Guardian::start("Signed-0").await;
    let notary = Arc::new(Notary::default());
    let config = EsConfig::from_url(&format!("{}/es", guardian.server.url)).unwrap();
    let transport = transport(config.with_request_signer(notary.clone()));
    assert_eq!(transport.send(write()).await.unwrap().status, 200);
    assert_eq!(transport.send(root()).await.unwrap().status, 200);
    let shown = std::mem::take(&mut *notary.shown.lock());
    assert_eq!(shown, ["POST /es/_bulk application/x-ndjson {}", "GET /es/  "]);
    // A refused signature: a write returns the refusal, and a read is signed once more.
    *guardian.takes.lock() = "Signed-2".to_owned();
    assert_eq!(transport.send(write()).await.unwrap().status, 401);
    assert_eq!(transport.send(write()).await.unwrap().status, 200);
    notary.epoch.store(1, Ordering::SeqCst);
    assert_eq!(transport.send(root()).await.unwrap().status, 200);
}

#[tokio::test]
async fn repeated_signature_is_hidden() {
    let server = Fake::start(|request: &Received| {
        let login = request.header("authorization").unwrap_or_default();
        Some((400, format!(r#"{{"error":{{"type":"x","reason":"bad request {login}"}}}}"#)))
    })
    .await;
    let config = EsConfig::from_url(&server.url).unwrap();
    let transport = transport(config.with_request_signer(Arc::new(Notary::default())));
    let answer = transport.send(write()).await.unwrap();
    let body = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(body.contains("bad request ***") && !body.contains("Signed"), "{body}");
}
