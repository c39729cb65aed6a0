//! Access to servers: options of the command, and their configuration.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use clap::Args;
use txn_es::{CredentialFile, EsConfig};

use crate::failure::StoreFailure;

/// Options for servers.
///
/// Pass logins by the environment or by a file, because all users of the machine can see arguments.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options for servers")]
pub struct Access {
    /// A file with certificate authorities (PEM) to trust. The public authorities are trusted, too
    #[arg(long, global = true, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
    /// The SHA-256 fingerprint of the one certificate authority to trust. The server prints the
    /// fingerprint at its first start
    #[arg(long, global = true, value_name = "HEX", conflicts_with = "ca_cert")]
    ca_fingerprint: Option<String>,
    /// A certificate (PEM) to show to the server
    #[arg(long, global = true, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// The private key (PEM) of that certificate
    #[arg(long, global = true, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// An API key in its encoded form; better given by the environment
    #[arg(
        long, global = true, env = "TXN_API_KEY", hide_env_values = true,
        conflicts_with_all = ["api_key_file", "bearer_token", "bearer_token_file"]
    )]
    api_key: Option<Secret>,
    /// A file with an API key. The command reads the file again when the server refuses the key
    #[arg(
        long, global = true, value_name = "FILE",
        conflicts_with_all = ["bearer_token", "bearer_token_file"]
    )]
    api_key_file: Option<PathBuf>,
    /// A bearer token, such as that of a service account. Better given by the environment
    #[arg(
        long,
        global = true,
        env = "TXN_BEARER_TOKEN",
        hide_env_values = true,
        conflicts_with = "bearer_token_file"
    )]
    bearer_token: Option<Secret>,
    /// A file with a bearer token. The command reads the file again when the server refuses the
    /// token
    #[arg(long, global = true, value_name = "FILE")]
    bearer_token_file: Option<PathBuf>,
    /// Sign requests for the managed OpenSearch of AWS. The credentials and the region are those of
    /// the environment
    #[cfg(feature = "aws-sigv4")]
    #[arg(
        long, global = true,
        conflicts_with_all = ["api_key", "api_key_file", "bearer_token", "bearer_token_file"]
    )]
    aws_sigv4: bool,
    /// A header for each request: `NAME: VALUE`. Line breaks separate several headers. Better given
    /// by the environment
    #[arg(
        long,
        global = true,
        env = "TXN_HEADERS",
        hide_env_values = true,
        value_name = "HEADER",
        value_delimiter = '\n'
    )]
    header: Vec<Secret>,
}

/// A text that is never printed.
#[derive(Clone)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Access {
    /// Adds the options to a configuration.
    ///
    /// # Errors
    /// [`StoreFailure::Misconfigured`] for a file that cannot be read, or a header without a name.
    pub fn apply(&self, mut config: EsConfig) -> Result<EsConfig, StoreFailure> {
        if let Some(path) = &self.ca_cert {
            config = config.with_certificate_authority_file(path);
        }
        if let Some(fingerprint) = &self.ca_fingerprint {
            config = config.with_ca_fingerprint(fingerprint);
        }
        if let (Some(certificate), Some(key)) = (&self.client_cert, &self.client_key) {
            config = config.with_client_certificate_files(certificate, key);
        }
        if let Some(Secret(key)) = &self.api_key {
            config = config.with_api_key(key);
        }
        if let Some(path) = &self.api_key_file {
            config = config.with_credentials(Arc::new(CredentialFile::api_key(path)));
        }
        if let Some(Secret(token)) = &self.bearer_token {
            config = config.with_bearer_token(token);
        }
        if let Some(path) = &self.bearer_token_file {
            config = config.with_credentials(Arc::new(CredentialFile::bearer(path)));
        }
        #[cfg(feature = "aws-sigv4")]
        if self.aws_sigv4 {
            let signer = txn_es::AwsSigner::from_environment();
            config = config.with_request_signer(Arc::new(signer));
        }
        for Secret(header) in &self.header {
            let (name, value) = header.split_once(':').ok_or_else(|| {
                StoreFailure::Misconfigured("a header is written NAME: VALUE".to_owned())
            })?;
            config = config.with_header(name.trim(), value.trim());
        }
        Ok(config)
    }

    /// Passes all options to a child process, secrets by its environment.
    pub fn hand_on(&self, command: &mut Command) {
        let Self { ca_cert, client_cert, client_key, api_key_file, bearer_token_file, .. } = self;
        for (option, path) in [
            ("--ca-cert", ca_cert),
            ("--client-cert", client_cert),
            ("--client-key", client_key),
            ("--api-key-file", api_key_file),
            ("--bearer-token-file", bearer_token_file),
        ] {
            if let Some(path) = path {
                command.arg(option).arg(path);
            }
        }
        if let Some(fingerprint) = &self.ca_fingerprint {
            command.arg("--ca-fingerprint").arg(fingerprint);
        }
        #[cfg(feature = "aws-sigv4")]
        if self.aws_sigv4 {
            command.arg("--aws-sigv4");
        }
        let headers: Vec<&str> = self.header.iter().map(|Secret(header)| header.as_str()).collect();
        let headers = (!headers.is_empty()).then(|| headers.join("\n"));
        for (variable, secret) in [
            ("TXN_API_KEY", self.api_key.as_ref().map(|Secret(key)| key)),
            ("TXN_BEARER_TOKEN", self.bearer_token.as_ref().map(|Secret(token)| token)),
            ("TXN_HEADERS", headers.as_ref()),
        ] {
            match secret {
                Some(secret) => command.env(variable, secret),
                None => command.env_remove(variable),
            };
        }
    }
}
