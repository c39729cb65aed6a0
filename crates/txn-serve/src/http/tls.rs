//! TLS: a certificate with its key.
//!
//! Both are read again after a change.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use txn_es::watched::Watched;

/// A certificate and its key, in files. Cheap to clone.
///
/// A gateway reads the files again after a change. Files that do not fit change nothing. New
/// connections use the new certificate, and running ones keep theirs.
#[derive(Clone, Debug)]
pub struct Tls {
    files: Arc<Watched<Arc<ServerConfig>>>,
}

impl Tls {
    /// Reads the certificate, with all intermediate ones, and its key. Both are PEM.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if a file cannot be read, or if they do not fit each other.
    pub fn open(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> io::Result<Self> {
        let files = Watched::open(vec![certificate.into(), key.into()], parse)?;
        Ok(Self { files: Arc::new(files) })
    }

    /// Reads the files again at once. Returns whether they have changed.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] at the first call that finds files that do not fit. The
    /// former certificate then holds.
    pub fn reload(&self) -> io::Result<bool> {
        self.files.reload()
    }

    /// Accepts connections with the current certificate.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from((*self.files.current()).clone())
    }
}

/// Parses the certificate and the key.
///
/// The reasons name no part of a file, because one of the files is secret.
fn parse(contents: &[Vec<u8>]) -> Result<Arc<ServerConfig>, String> {
    let [certificate, key] = contents else {
        return Err("a certificate and a key are two files".to_owned());
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|_| "the certificate is not PEM".to_owned())?;
    if chain.is_empty() {
        return Err("the file has no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|_| "the file of the key has no private key in PEM".to_owned())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config =
        config.map_err(|error| format!("the certificate and the key do not fit: {error}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
