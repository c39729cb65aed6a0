//! TLS: the trusted certificate authorities.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::{OutboxError, Result};

/// Adds the authorities of a PEM text to the trusted ones.
pub(crate) fn trust(roots: &mut RootCertStore, pem: &[u8]) -> Result<()> {
    let refuse = || OutboxError::InvalidConfig("an authority is no certificate in PEM");
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(|_| refuse())?).map_err(|_| refuse())?;
    }
    if roots.len() == before { Err(refuse()) } else { Ok(()) }
}

/// A client that trusts these authorities, without a client certificate.
pub(crate) fn client(roots: RootCertStore) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.map_err(|_| OutboxError::InvalidConfig("TLS is not available"))?;
    Ok(tls.with_root_certificates(roots).with_no_client_auth())
}
