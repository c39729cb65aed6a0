//! Generated certificates for a server with TLS.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::servers::error::Result;

/// PEM texts: an authority, and a server certificate with its key.
#[derive(Debug)]
pub struct Certificates {
    /// The certificate of the authority.
    pub authority: String,
    /// The certificate of the server.
    pub server: String,
    /// The private key of the server, for tests only.
    pub server_key: String,
}

impl Certificates {
    /// Creates certificates for `localhost` and `127.0.0.1`.
    ///
    /// The key of the authority is discarded.
    ///
    /// # Errors
    /// If the certificates cannot be created.
    pub fn make() -> Result<Self> {
        let authority_key = KeyPair::generate()?;
        let mut authority = parameters(Vec::new(), "txn test authority")?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let server_key = KeyPair::generate()?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut server = parameters(names, "txn test server")?;
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.use_authority_key_identifier_extension = true;
        let server_pem = server.signed_by(&server_key, &issuer)?.pem();

        Ok(Self {
            authority: authority_pem,
            server: server_pem,
            server_key: server_key.serialize_pem(),
        })
    }
}

fn parameters(names: Vec<String>, common_name: &str) -> Result<CertificateParams> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name.push(DnType::CommonName, common_name);
    parameters.not_before = date_time_ymd(2024, 1, 1);
    parameters.not_after = date_time_ymd(2049, 1, 1);
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_pem() {
        let made = Certificates::make().unwrap();
        assert!(made.authority.starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(made.server.starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(made.server_key.starts_with("-----BEGIN PRIVATE KEY-----"));
    }
}
