//! Secrets in files, in one folder for each destination.

use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use async_trait::async_trait;

use crate::http::secret::{SecretString, Secrets};

/// Secrets in files, which are read for each call.
///
/// A file has the text of a header. It lies in a folder with the host and the port of the only
/// destination that receives the text: the secret `api` of `https://api.example.com` is in
/// `api.example.com:443/api`. A line break at the end does not count.
#[derive(Clone, Debug)]
pub struct SecretFiles {
    folder: PathBuf,
}

impl SecretFiles {
    /// Reads secrets below this folder.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The file of a secret. `None` for a name that is not one of a file.
    fn path(&self, name: &str, to: &str) -> Option<PathBuf> {
        let (_, host) = to.split_once("://")?;
        Some(self.folder.join(plain(host)?).join(plain(name)?))
    }
}

/// Refuses a text that leads to another folder.
fn plain(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    let mut parts = path.components();
    let is_plain = matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(part)), None) if part == name
    );
    (is_plain && !name.contains(['/', '\\', '\0'])).then_some(path)
}

#[async_trait]
impl Secrets for SecretFiles {
    async fn secret(
        &self,
        name: &str,
        to: &str,
    ) -> Result<Option<SecretString>, Box<dyn std::error::Error + Send + Sync>> {
        let Some(path) = self.path(name, to) else { return Ok(None) };
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path));
        match read.await? {
            Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).into())),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    use ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory | InvalidFilename)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    const HERE: &str = "https://api.example.com:443";

    #[tokio::test]
    async fn secret_is_for_its_destination_alone() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("api.example.com:443");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("api"), "Bearer one\n").unwrap();
        std::fs::create_dir(inside.join("folder")).unwrap();
        std::fs::write(folder.path().join("api"), "Bearer two\n").unwrap();
        let files = SecretFiles::new(folder.path());
        let secret = async |name: &str, to: &str| {
            let found = files.secret(name, to).await.unwrap();
            found.map(|text| text.expose_secret().to_owned())
        };
        assert_eq!(secret("api", HERE).await.as_deref(), Some("Bearer one"));
        // The text is read again for each call.
        std::fs::write(inside.join("api"), "Bearer three").unwrap();
        assert_eq!(secret("api", HERE).await.as_deref(), Some("Bearer three"));
        for (name, to) in [
            ("api", "https://api.example.com:8443"),
            ("folder", HERE),
            (&*"x".repeat(300), HERE),
            ("other", HERE),
            ("../api", HERE),
            ("..", HERE),
            ("./api", HERE),
            ("api/", HERE),
            ("", HERE),
            ("/etc/hostname", HERE),
            ("api", "https://.."),
            ("api", "https://."),
            ("api", ""),
        ] {
            assert_eq!(secret(name, to).await, None, "{name} {to}");
        }
    }
}
