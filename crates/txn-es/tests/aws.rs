//! Requests signed for AWS, against a gateway that recomputes each signature.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, future};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use txn_es::{AwsSigner, EsConfig, EsStore};
use txn_store::{CollectionSpec, Key, Role, Store, StoreErrorKind};

const REGION: &str = "eu-central-1";

/// The secrets of the keys that the gateway knows.
const KEYS: [(&str, &str); 3] =
    [("AKID1", "secret/one+"), ("AKID2", "secret/two="), ("AKID3", "secret/three")];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Encodes as the specification says: all characters except letters, digits and `-._~`.
///
/// A path also keeps `/`.
fn encode(bytes: &[u8], keep_slash: bool) -> String {
    let each = bytes.iter().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(*byte).to_string()
        }
        b'/' if keep_slash => "/".to_owned(),
        byte => format!("%{byte:02X}"),
    });
    each.collect()
}

fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("an escape"));
                rest = after;
            }
            // In a query a plus means a blank.
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

/// A request as it arrived.
struct Arrived {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Arrived {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the fault of the signature.
    fn fault(&self) -> Option<String> {
        self.check().unwrap_or_else(|| Some("no signature of AWS".to_owned()))
    }

    /// Returns the fault of the signature.
    ///
    /// The outer `None`: there is no signature.
    fn check(&self) -> Option<Option<String>> {
        let wrong = |what: &str| Some(Some(what.to_owned()));
        let authorization = self.header("authorization");
        let parts: BTreeMap<&str, &str> = authorization
            .strip_prefix("AWS4-HMAC-SHA256 ")?
            .split(',')
            .filter_map(|part| part.trim().split_once('='))
            .collect();
        let credential: Vec<&str> = parts.get("Credential")?.split('/').collect();
        let [key, date, region, service, end] = credential[..] else { return wrong("the scope") };
        let Some((_, secret)) = KEYS.iter().find(|(known, _)| *known == key) else {
            return wrong("the key");
        };
        let time = self.header("x-amz-date");
        if (region, service, end) != (REGION, "es", "aws4_request") || !time.starts_with(date) {
            return wrong("the scope");
        }
        let digest = hex(&Sha256::digest(&self.body));
        if self.header("x-amz-content-sha256") != digest {
            return wrong("the digest of the body");
        }
        let signed = parts.get("SignedHeaders")?;
        let names: Vec<&str> = signed.split(';').collect();
        let must = ["host", "x-amz-date", "x-amz-content-sha256"];
        let token = self.headers.contains_key("x-amz-security-token");
        if must.iter().any(|name| !names.contains(name))
            || token != names.contains(&"x-amz-security-token")
        {
            return wrong("which headers are signed");
        }
        let canonical = self.canonical(signed, &digest);
        let scope = format!("{date}/{region}/{service}/{end}");
        let text =
            format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(&canonical)));
        let key = [date, region, service, end]
            .iter()
            .fold(format!("AWS4{secret}").into_bytes(), |key, part| hmac(&key, part));
        match parts.get("Signature")? == &hex(&hmac(&key, &text)) {
            true => Some(None),
            false => wrong(&format!("the signature of {canonical}")),
        }
    }

    /// Returns the canonical form, which is signed.
    fn canonical(&self, signed: &str, digest: &str) -> String {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let mut pairs: Vec<(String, String)> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (encode(&decode(name), false), encode(&decode(value), false)))
            .collect();
        pairs.sort();
        let query: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let header = |name| format!("{name}:{}\n", self.header(name).trim());
        let headers: String = signed.split(';').map(header).collect();
        // The path is encoded once more than it is sent, for every service except S3.
        let path = encode(path.as_bytes(), true);
        [&*self.method, &path, &query.join("&"), &headers, signed, digest].join("\n")
    }

    fn key(&self) -> &str {
        let key = self.header("authorization").split("Credential=").nth(1).unwrap_or_default();
        key.split('/').next().unwrap_or_default()
    }
}

/// A gateway in front of a minimal server. The gateway counts accepted and refused requests.
struct Gateway {
    url: String,
    admitted: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    /// The number of the only accepted key; 0 for all known keys.
    only: Arc<AtomicUsize>,
}

impl Gateway {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let [admitted, refused, only] = std::array::from_fn(|_| Arc::new(AtomicUsize::new(0)));
        let counts = (admitted.clone(), refused.clone(), only.clone());
        std::thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                let counts = counts.clone();
                std::thread::spawn(move || serve(socket, &counts));
            }
        });
        Self { url, admitted, refused, only }
    }

    fn config(&self, signer: AwsSigner) -> EsConfig {
        let config = EsConfig::from_url(&self.url).expect("an address");
        config.with_request_signer(Arc::new(signer))
    }
}

type Counts = (Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>);

fn serve(socket: TcpStream, (admitted, refused, only): &Counts) -> Option<()> {
    let mut reader = BufReader::new(socket.try_clone().ok()?);
    let mut writer = socket;
    loop {
        let request = read(&mut reader)?;
        let wanted = format!("AKID{}", only.load(Ordering::SeqCst));
        let fault = match request.fault() {
            None if wanted != "AKID0" && request.key() != wanted => Some("an old key".to_owned()),
            fault => fault,
        };
        let (status, body) = match &fault {
            Some(fault) => {
                refused.fetch_add(1, Ordering::SeqCst);
                (403, format!("{{\"message\":{:?}}}", format!("does not match: {fault}")))
            }
            None => {
                admitted.fetch_add(1, Ordering::SeqCst);
                content(&request)
            }
        };
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
        writer.write_all((head + &body).as_bytes()).ok()?;
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Arrived> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut first = line.split(' ').map(str::to_owned);
    let (method, target) = (first.next()?, first.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(Some(0), |length| length.parse().ok())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Arrived { method, target, headers, body })
}

fn content(request: &Arrived) -> (u16, String) {
    match &*request.target {
        "/" => (200, r#"{"version":{"number":"2.19.0","distribution":"opensearch"}}"#.to_owned()),
        _ => {
            let missing = r#"{"error":{"type":"index_not_found_exception","reason":"no such index [x]"},"status":404}"#;
            (404, missing.to_owned())
        }
    }
}

/// Provides the keys of the gateway in turn, each for `lasts`.
#[derive(Debug)]
struct Rotation {
    lasts: Option<Duration>,
    asked: Arc<AtomicUsize>,
}

impl Rotation {
    fn new(lasts: Option<Duration>) -> (Self, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        (Self { lasts, asked: asked.clone() }, asked)
    }
}

impl ProvideCredentials for Rotation {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let (key, secret) = KEYS[self.asked.fetch_add(1, Ordering::SeqCst) % KEYS.len()];
        let expiry = self.lasts.map(|lasts| SystemTime::now() + lasts);
        let token = Some("token/with+signs==".to_owned());
        future::ProvideCredentials::ready(Ok(Credentials::new(key, secret, token, expiry, "test")))
    }
}

#[tokio::test]
async fn every_kind_of_request_is_signed() {
    let gateway = Gateway::start();
    let (rotation, asked) = Rotation::new(None);
    let store = EsStore::connect(gateway.config(AwsSigner::new(rotation, REGION))).await;
    let store = store.expect("let in");
    assert_eq!(store.server().to_string(), "opensearch 2.19.0");
    // Names that are escaped in paths, queries with several values, and bodies.
    for name in ["a", "größe+b%c&d=e", "a b"] {
        let spec = CollectionSpec {
            name: name.to_owned(),
            role: Role::Data { owner: None },
            create: false,
            mappings: None,
        };
        let kind = store.open_collection(&spec).await.expect_err("nothing there").kind;
        let expected = match name.contains(' ') {
            true => StoreErrorKind::Misconfigured,
            false => StoreErrorKind::NotFound,
        };
        assert_eq!(kind, expected, "{name}");
        store.drop_collection(name).await.ok();
        store.list_collections(name).await.ok();
        store.add_alias("b", name).await.ok();
        store.get_many(&[Key::new(name, "1")]).await;
    }
    store.server_time().await.ok();
    assert_eq!(gateway.refused.load(Ordering::SeqCst), 0);
    assert!(gateway.admitted.load(Ordering::SeqCst) > 10);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "credentials that do not expire are kept");
}

#[tokio::test]
async fn a_prefix_is_signed() {
    let gateway = Gateway::start();
    let (rotation, _) = Rotation::new(None);
    let signer = Arc::new(AwsSigner::new(rotation, REGION));
    let config = EsConfig::from_url(&format!("{}/es/a%20b/", gateway.url)).expect("an address");
    // No server answers after the prefix.
    let error = EsStore::connect(config.with_request_signer(signer)).await.expect_err("no server");
    assert_eq!(gateway.refused.load(Ordering::SeqCst), 0, "{error}");
}

#[tokio::test]
async fn a_wrong_secret_is_refused() {
    let gateway = Gateway::start();
    for (key, secret, region) in
        [("AKID1", "wrong", REGION), ("AKID9", "x", REGION), ("AKID1", "secret/one+", "eu-west-1")]
    {
        let credentials = Credentials::new(key, secret, None, None, "test");
        let error = EsStore::connect(gateway.config(AwsSigner::new(credentials, region))).await;
        let error = error.expect_err("refused");
        assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    }
    assert_eq!(gateway.admitted.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_request_without_a_signature_is_refused() {
    let gateway = Gateway::start();
    let config = EsConfig::from_url(&gateway.url).expect("an address");
    for config in [config.clone(), config.with_bearer_token("AKID1")] {
        let error = EsStore::connect(config).await.expect_err("refused");
        assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    }
}

#[tokio::test]
async fn credentials_that_expire_are_renewed() {
    let gateway = Gateway::start();
    // Each key is about to expire.
    let (rotation, asked) = Rotation::new(Some(Duration::from_secs(60)));
    let store = EsStore::connect(gateway.config(AwsSigner::new(rotation, REGION))).await;
    let store = store.expect("let in");
    for _ in 0..4 {
        store.server_time().await.ok();
    }
    assert_eq!(gateway.refused.load(Ordering::SeqCst), 0);
    let (asked, sent) = (asked.load(Ordering::SeqCst), gateway.admitted.load(Ordering::SeqCst));
    assert_eq!(asked, sent, "asked for each request");
}

#[tokio::test]
async fn credentials_that_are_refused_are_renewed() {
    let gateway = Gateway::start();
    let (rotation, asked) = Rotation::new(None);
    let store = EsStore::connect(gateway.config(AwsSigner::new(rotation, REGION))).await;
    let store = store.expect("let in");
    gateway.only.store(2, Ordering::SeqCst);
    let error = store.server_time().await.expect_err("let in, and nothing there");
    assert_eq!(error.kind, StoreErrorKind::NotFound, "{error}");
    assert_eq!((gateway.refused.load(Ordering::SeqCst), asked.load(Ordering::SeqCst)), (1, 2));
    // If the role is refused, the signer does not ask its provider for each request.
    gateway.only.store(9, Ordering::SeqCst);
    for _ in 0..5 {
        let error = store.server_time().await.expect_err("refused");
        assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// With credentials in the environment the chain uses no network.
#[tokio::test]
async fn the_default_chain_reads_the_environment() {
    let gateway = Gateway::start();
    let program = std::env::current_exe().expect("this program");
    let run = |region: Option<&str>| {
        let mut command = std::process::Command::new(&program);
        command.args(["--exact", "the_environment_of_a_process", "--ignored", "--nocapture"]);
        command.env("GATEWAY", &gateway.url).env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("AWS_ACCESS_KEY_ID", "AKID2").env("AWS_SECRET_ACCESS_KEY", "secret/two=");
        command.env_remove("AWS_REGION").env_remove("AWS_DEFAULT_REGION");
        command.envs(region.map(|region| ("AWS_REGION", region)));
        let output = command.output().expect("runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let told = run(Some(REGION));
    assert!(told.contains("connected to opensearch 2.19.0"), "{told}");
    let told = run(None);
    assert!(told.contains("set AWS_REGION"), "{told}");
}

#[tokio::test]
#[ignore = "run by the test above, in an environment of its own"]
async fn the_environment_of_a_process() {
    let url = std::env::var("GATEWAY").expect("run by another test");
    let signer = Arc::new(AwsSigner::from_environment());
    let config = EsConfig::from_url(&url).expect("an address").with_request_signer(signer);
    match EsStore::connect(config).await {
        Ok(store) => println!("connected to {}", store.server()),
        Err(error) => println!("{error}"),
    }
}
