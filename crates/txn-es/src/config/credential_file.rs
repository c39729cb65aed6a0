//! A login in a file.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use txn_store::{StoreError, StoreErrorKind};

use super::auth::{CredentialProvider, EsAuth};

/// A key or token in a file, such as a mounted secret.
///
/// Another program keeps the file up to date. The store reads the file again after the servers
/// refused its content.
#[derive(Clone, Debug)]
pub struct CredentialFile {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    ApiKey,
    Bearer,
}

impl CredentialFile {
    /// Reads an API key in its encoded form.
    pub fn api_key(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), kind: Kind::ApiKey }
    }

    /// Reads a bearer token.
    pub fn bearer(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), kind: Kind::Bearer }
    }
}

#[async_trait]
impl CredentialProvider for CredentialFile {
    async fn credentials(&self) -> Result<EsAuth, StoreError> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        let secret = read.unwrap_or_else(|_| Err(unreadable(&self.path, "it was not read")))?;
        Ok(match self.kind {
            Kind::ApiKey => EsAuth::ApiKey(secret),
            Kind::Bearer => EsAuth::Bearer(secret),
        })
    }
}

/// Trims line breaks and blanks around the text.
fn read(path: &Path) -> Result<SecretString, StoreError> {
    let text = std::fs::read_to_string(path);
    let text: SecretString = text.map_err(|error| unreadable(path, &error.to_string()))?.into();
    match text.expose_secret().trim() {
        "" => Err(unreadable(path, "it is empty")),
        trimmed => Ok(trimmed.to_owned().into()),
    }
}

/// `Unavailable`, because another program may be replacing the file.
fn unreadable(path: &Path, why: &str) -> StoreError {
    let text = format!("cannot read the login from {}: {why}", path.display());
    StoreError::new(StoreErrorKind::Unavailable, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_read_each_time() {
        let directory = std::env::temp_dir().join(format!("txn-es-login-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("token");
        let file = CredentialFile::bearer(&path);
        for text in [None, Some(""), Some(" \n")] {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let error = file.credentials().await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Unavailable);
            assert!(error.message.contains("token"), "{error}");
        }
        for text in ["first", "second"] {
            std::fs::write(&path, format!("{text}\n")).unwrap();
            let EsAuth::Bearer(token) = file.credentials().await.unwrap() else { panic!() };
            assert_eq!(token.expose_secret(), text);
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
