//! What TLS needs, made once for all calls: the authorities that are trusted, and the sessions that can be resumed.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::{OutboxError, Result};

/// What TLS needs.
pub(crate) struct Tls(ClientConfig);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Trusts the usual authorities, and these.
    pub(crate) fn new(authorities: &[String]) -> Result<Self> {
        let refuse = || OutboxError::InvalidConfig("an authority is no certificate in PEM");
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        for authority in authorities {
            let before = roots.len();
            for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
                roots.add(certificate.map_err(|_| refuse())?).map_err(|_| refuse())?;
            }
            if roots.len() == before {
                return Err(refuse());
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let tls = tls.map_err(|_| OutboxError::InvalidConfig("TLS is not to be had"))?;
        let mut tls = tls.with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(tls))
    }

    /// For one client: it shares all of this.
    pub(crate) fn client(&self) -> ClientConfig {
        self.0.clone()
    }
}
