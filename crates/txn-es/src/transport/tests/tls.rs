//! Certificates: of authorities, by fingerprint, and of clients.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use super::fake::{Fake, Received};
use super::*;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns a certificate for a name and its key, both PEM.
fn certificate(issuer: &Issuer, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

fn fingerprint(issuer: &Issuer) -> String {
    Sha256::digest(issuer.der()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts a server with a certificate for a name.
///
/// The server sends the certificates in `along`, and asks for client certificates of `asks`.
async fn server(issuer: &Issuer, name: &str, along: &[&Issuer], asks: Option<&Issuer>) -> String {
    let (own, key) = certificate(issuer, name);
    let mut chain = vec![CertificateDer::from_pem_slice(own.as_bytes()).unwrap()];
    chain.extend(along.iter().map(|issuer| issuer.der().clone()));
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match asks {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()));
    let answer = |_: &Received| Some((200, "{}".to_owned()));
    Fake::start_with(Some(acceptor), answer).await.url
}

async fn status(config: EsConfig) -> Result<u16, Failure> {
    Transport::new(&config).unwrap().send(write()).await.map(|answer| answer.status)
}

async fn refused(config: EsConfig) -> StoreError {
    let failure = status(config).await.unwrap_err();
    let Failure::NotSent(error) = failure else { panic!("{failure:?}") };
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    error
}

#[tokio::test]
async fn an_authority_is_trusted_by_its_certificate() {
    let (ours, other) = (authority("ours"), authority("other"));
    let config = EsConfig::from_url(&server(&ours, "127.0.0.1", &[], None).await).unwrap();
    let both = format!("{}{}", other.pem(), ours.pem());
    assert_eq!(status(config.clone().with_certificate_authority(both)).await.unwrap(), 200);
    let error = refused(config.clone().with_certificate_authority(other.pem())).await;
    assert!(error.message.contains("certificate"), "{error}");
    assert!(refused(config).await.message.contains("certificate"));
}

#[tokio::test]
async fn an_authority_is_trusted_by_its_fingerprint() {
    let (ours, other) = (authority("ours"), authority("other"));
    let url = server(&ours, "127.0.0.1", &[&ours], None).await;
    let config = EsConfig::from_url(&url).unwrap();
    let lower = fingerprint(&ours);
    let colons = lower.as_bytes().chunks(2).map(|two| String::from_utf8_lossy(two).to_uppercase());
    let colons = colons.collect::<Vec<_>>().join(":");
    for text in [lower, colons] {
        assert_eq!(status(config.clone().with_ca_fingerprint(text)).await.unwrap(), 200);
    }
    // Another authority, an authority that is not sent, an impostor that sends our authority, and
    // another name.
    let impostor = server(&other, "127.0.0.1", &[&other, &ours], None).await;
    for (url, pinned, words) in [
        (url, &other, "fingerprint"),
        (server(&ours, "127.0.0.1", &[], None).await, &ours, "fingerprint"),
        (impostor, &ours, "certificate"),
        (server(&ours, "db.example", &[&ours], None).await, &ours, "certificate"),
    ] {
        let config = EsConfig::from_url(&url).unwrap().with_ca_fingerprint(fingerprint(pinned));
        let error = refused(config).await;
        assert!(error.message.contains(words), "{error}");
    }
    for (url, text) in [("https://h", "12:34"), ("https://h", "xyz"), ("http://h", "00")] {
        let config = EsConfig::from_url(url).unwrap().with_ca_fingerprint(text);
        let error = Transport::new(&config).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    }
}

#[tokio::test]
async fn a_client_shows_its_certificate() {
    let (ours, clients) = (authority("ours"), authority("clients"));
    let url = server(&ours, "127.0.0.1", &[], Some(&clients)).await;
    let config = EsConfig::from_url(&url).unwrap().with_certificate_authority(ours.pem());
    let (certificate, key) = certificate(&clients, "application");
    let shows = config.clone().with_client_certificate(certificate.clone(), key.clone());
    assert_eq!(status(shows).await.unwrap(), 200);
    assert!(status(config.clone()).await.is_err(), "a server that asks for a certificate");
    for (certificate, key) in
        [("hunter2", &*key), (&*certificate, "hunter2"), (&*ours.pem(), &*key)]
    {
        let config = config.clone().with_client_certificate(certificate, key);
        let error = Transport::new(&config).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        assert!(!error.message.contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn changed_files_count_for_new_connections() {
    let (old, new) = (authority("old"), authority("new"));
    let (before, after) = (
        server(&old, "127.0.0.1", &[], Some(&old)).await,
        server(&new, "127.0.0.1", &[], Some(&new)).await,
    );
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let write = |issuer: &Issuer| {
        let (certificate, key) = certificate(issuer, "application");
        for (name, text) in [("ca", issuer.pem()), ("cert", certificate), ("key", key)] {
            std::fs::write(path(name), text).unwrap();
        }
    };
    write(&old);
    let config = |url: &str| {
        let config = EsConfig::from_url(url).unwrap();
        let config = config.with_certificate_authority_file(path("ca"));
        config.with_client_certificate_files(path("cert"), path("key"))
    };
    let transports = [&before, &after].map(|url| Transport::new(&config(url)).unwrap());
    let sent = async |transport: &Transport| transport.send(super::write()).await.is_ok();
    assert!(sent(&transports[0]).await && !sent(&transports[1]).await);
    write(&new);
    assert!(sent(&transports[1]).await, "the new authority and certificate");
    std::fs::write(path("key"), "hunter2").unwrap();
    let again = Transport::new(&config(&after)).unwrap_err();
    assert_eq!(again.kind, StoreErrorKind::Misconfigured);
    assert!(again.message.contains("key") && !again.message.contains("hunter2"), "{again}");
}
