//! User names and passwords.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use serde::{Deserialize, Serialize};

use super::error::{OnPath, Result};

/// A password. `Debug` output hides the text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

impl Password {
    /// Wraps a password.
    #[must_use]
    pub fn new(password: impl Into<String>) -> Self {
        Self(password.into())
    }

    /// Returns the password as text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Creates a password of 128 random bits, in letters and digits.
    pub(crate) fn random() -> Result<Self> {
        let source = Path::new("/dev/urandom");
        let mut bytes = [0_u8; 16];
        File::open(source)
            .and_then(|mut file| file.read_exact(&mut bytes))
            .on("read random bytes from", source)?;
        Ok(Self(format!("{:x}", base16ct::HexDisplay(&bytes))))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// A user of a secured server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// The user's name.
    pub username: String,
    /// The user's password.
    pub password: Password,
}

impl Credentials {
    /// Returns the value of an `Authorization` header.
    pub(crate) fn basic(&self) -> String {
        let pair = format!("{}:{}", self.username, self.password.expose());
        format!("Basic {}", STANDARD.encode(pair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_basic() {
        let user = Credentials { username: "elastic".into(), password: Password::new("secret") };
        assert_eq!(user.basic(), "Basic ZWxhc3RpYzpzZWNyZXQ=");
    }

    #[test]
    fn a_password_is_not_printed() {
        let password = Password::random().unwrap();
        let user = Credentials { username: "elastic".to_owned(), password: password.clone() };
        assert_eq!(password.expose().len(), 32);
        assert!(!format!("{user:?}").contains(password.expose()));
    }
}
