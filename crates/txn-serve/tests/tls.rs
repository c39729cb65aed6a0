//! TLS, and certificates that change.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use txn_core::store::MemoryStore;
use txn_serve::{ServeConfig, Tls};

use super::desk::{Desk, Socket};

/// The files of a certificate.
struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, made: &CertifiedKey<rcgen::KeyPair>) {
        write(&self.path("certificate.pem"), &made.cert.pem());
        write(&self.path("key.pem"), &made.signing_key.serialize_pem());
    }

    fn open(&self) -> std::io::Result<Tls> {
        Tls::open(self.path("certificate.pem"), self.path("key.pem"))
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("writes");
}

fn certificate() -> CertifiedKey<rcgen::KeyPair> {
    generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate")
}

async fn desk(tls: &Tls) -> (Desk, Socket) {
    let config = ServeConfig::default().with_tls(Some(tls.clone()));
    let desk = Desk::with(Arc::new(MemoryStore::new()), config).await;
    let socket = desk.listen().await;
    (desk, socket)
}

/// Asks as a client that trusts one certificate. Returns the status.
async fn status(socket: &Socket, trusted: &CertificateDer<'static>) -> Option<u16> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(socket.address).await.expect("connects");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let request = Request::get("/healthz").header("host", "localhost");
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    let answer = sender.send_request(request).await.expect("an answer");
    let status = answer.status().as_u16();
    answer.into_body().collect().await.expect("a body");
    Some(status)
}

#[tokio::test]
async fn clients_that_trust_the_certificate_are_answered() {
    let (files, made) = (Files::new(), certificate());
    files.write(&made);
    let (_desk, socket) = desk(&files.open().expect("fits")).await;
    assert_eq!(status(&socket, made.cert.der()).await, Some(200));
    assert_eq!(status(&socket, certificate().cert.der()).await, None);
    // A request without TLS is not answered.
    let mut plain = TcpStream::connect(socket.address).await.expect("connects");
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sends");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    drop(socket.stop);
    assert!(socket.served.await.expect("no panic"));
}

#[tokio::test]
async fn drain_waits_for_no_handshake() {
    let files = Files::new();
    files.write(&certificate());
    let (_desk, socket) = desk(&files.open().expect("fits")).await;
    let silent = TcpStream::connect(socket.address).await.expect("connects");
    drop(socket.stop);
    assert!(socket.served.await.expect("no panic"));
    drop(silent);
}

#[tokio::test]
async fn changed_pair_holds_and_broken_one_does_not() {
    let (files, first, second) = (Files::new(), certificate(), certificate());
    files.write(&first);
    let tls = files.open().expect("fits");
    let (_desk, socket) = desk(&tls).await;
    assert!(!tls.reload().expect("no change"));
    // The certificate is new, and the key is not.
    write(&files.path("certificate.pem"), &second.cert.pem());
    let error = tls.reload().expect_err("the key does not fit");
    assert!(error.to_string().contains("do not fit"), "{error}");
    assert_eq!(status(&socket, first.cert.der()).await, Some(200));
    assert_eq!(status(&socket, second.cert.der()).await, None);
    write(&files.path("key.pem"), &second.signing_key.serialize_pem());
    assert!(tls.reload().expect("fits"));
    assert_eq!(status(&socket, first.cert.der()).await, None);
    assert_eq!(status(&socket, second.cert.der()).await, Some(200));
    write(&files.path("key.pem"), "");
    tls.reload().expect_err("no key");
    assert_eq!(status(&socket, second.cert.der()).await, Some(200));
}

#[test]
fn unfit_files_are_refused_without_their_content() {
    let (files, made) = (Files::new(), certificate());
    let key = made.signing_key.serialize_pem();
    files.open().expect_err("no files");
    for (certificate, key) in [
        ("", &*key),
        ("hunter2", &key),
        (&made.cert.pem(), ""),
        (&made.cert.pem(), "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n"),
        (&made.cert.pem(), &certificate_key()),
    ] {
        write(&files.path("certificate.pem"), certificate);
        write(&files.path("key.pem"), key);
        let error = files.open().expect_err("unfit").to_string();
        assert!(error.contains("key.pem") && !error.contains("hunter2"), "{error}");
    }
}

fn certificate_key() -> String {
    certificate().signing_key.serialize_pem()
}
