//! The TLS state of all calls: trusted authorities and resumable sessions.

use std::fmt;

use rustls::{ClientConfig, RootCertStore};

use crate::error::Result;
use crate::tls;

/// The shared state of TLS.
pub(crate) struct Tls(ClientConfig);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Trusts the usual authorities, and these.
    pub(crate) fn new(authorities: &[String]) -> Result<Self> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        for authority in authorities {
            tls::trust(&mut roots, authority.as_bytes())?;
        }
        let mut client = tls::client(roots)?;
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(client))
    }

    /// The configuration of one client, which shares this state.
    pub(crate) fn client(&self) -> ClientConfig {
        self.0.clone()
    }
}
