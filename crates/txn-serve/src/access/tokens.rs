//! The file of tokens: names, hashes and rights.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base16ct::HexDisplay;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::rights::{Right, Rights};
use txn_es::watched::Watched;

/// The beginning of each token, for programs that search for leaked secrets.
pub(super) const PREFIX: &str = "txn_";

/// The longest name of a token, in bytes.
const MOST_NAME: usize = 100;

/// The hash of a token.
///
/// A token has 32 random bytes, which cannot be guessed. So a fast hash protects it at rest.
type Hash = [u8; 32];

/// An entry of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: String,
    /// The SHA-256 of the token, in hexadecimal digits.
    pub(super) sha256: String,
    #[serde(default)]
    pub(super) rights: Vec<Right>,
}

/// The form of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    #[serde(default)]
    token: Vec<Entry>,
}

/// A token of the file, by its hash.
pub(crate) struct Holder {
    pub(crate) name: String,
    hash: Hash,
    pub(crate) rights: Rights,
}

/// Leaves the hash out of logs.
impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The tokens of a file, which callers of a gateway need. Cheap to clone.
///
/// A gateway reads the file again after a change. A file that does not fit changes nothing.
#[derive(Clone, Debug)]
pub struct Tokens {
    file: Arc<Watched<Vec<Arc<Holder>>>>,
}

impl Tokens {
    /// Reads the file.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the file cannot be read, or does not fit.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        Ok(Self { file: Arc::new(Watched::open(vec![path.into()], parse)?) })
    }

    /// Reads the file again at once. Returns whether it has changed.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] at the first call that finds a file that does not fit. The
    /// former tokens then hold.
    pub fn reload(&self) -> io::Result<bool> {
        self.file.reload()
    }

    /// Finds the holder of a token. The time does not depend on the hashes.
    pub(super) fn find(&self, token: &str) -> Option<Arc<Holder>> {
        let hash = hash(token);
        let mut found = None;
        for holder in &*self.file.current() {
            if bool::from(holder.hash.ct_eq(&hash)) {
                found = Some(holder.clone());
            }
        }
        found
    }
}

/// The hexadecimal digits of bytes.
pub(super) fn hex(bytes: &[u8]) -> String {
    format!("{:x}", HexDisplay(bytes))
}

pub(super) fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

fn parse(contents: &[Vec<u8>]) -> Result<Vec<Arc<Holder>>, String> {
    let text = contents.first().map_or(&[][..], Vec::as_slice);
    let text = std::str::from_utf8(text).map_err(|_| "the file is not UTF-8".to_owned())?;
    let entries: Entries = toml::from_str(text).map_err(|error| unfit(text, &error))?;
    let mut holders: Vec<Arc<Holder>> = Vec::new();
    for (at, entry) in entries.token.into_iter().enumerate() {
        let holder = holder(entry).map_err(|why| format!("token {}: {why}", at + 1))?;
        if holders.iter().any(|other| other.hash == holder.hash) {
            return Err(format!("token {}: the hash occurs twice", at + 1));
        }
        holders.push(Arc::new(holder));
    }
    Ok(holders)
}

/// Returns the reason without values.
///
/// A value may be a token that was pasted by mistake.
fn unfit(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start);
    let line = text.get(..at).unwrap_or_default().split('\n').count();
    let message = error.message();
    let has_value = message.starts_with("invalid") || message.contains(PREFIX);
    let message = if has_value { "the value does not fit" } else { message };
    format!("line {line}: {message}")
}

pub(super) fn holder(entry: Entry) -> Result<Holder, String> {
    let Entry { name, sha256, rights } = entry;
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(fits) {
        let form = "letters, digits, dots, hyphens, underscores and @";
        return Err(format!("a name has 1 to {MOST_NAME} ASCII {form}"));
    }
    let mut hash = Hash::default();
    match base16ct::lower::decode(&sha256, &mut hash) {
        Ok(bytes) if bytes.len() == size_of::<Hash>() => {}
        _ => return Err("`sha256` has not 64 lower-case hexadecimal digits".to_owned()),
    }
    Ok(Holder { name, hash, rights: Rights::new(rights)? })
}

#[cfg(test)]
mod tests {
    use super::super::rights::Verb;
    use super::*;

    fn entry(name: &str, token: &str, rights: &str) -> String {
        let digits = hex(&hash(token));
        format!("[[token]]\nname = \"{name}\"\nsha256 = \"{digits}\"\nrights = {rights}\n")
    }

    fn parsed(text: &str) -> Result<Vec<Arc<Holder>>, String> {
        parse(&[text.as_bytes().to_vec()])
    }

    #[test]
    fn holder_is_found_by_the_whole_token() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens.toml");
        let rights = r#"[{ collections = ["stock"], verbs = ["read"] }, { verbs = ["metrics"] }]"#;
        let text = entry("shop", "secret", rights) + &entry("shop", "next", "[]");
        std::fs::write(&path, text).expect("writes");
        let tokens = Tokens::open(&path).expect("tokens");
        let shop = tokens.find("secret").expect("a holder");
        assert_eq!(shop.name, "shop");
        assert!(shop.rights.cover(Verb::Read, "stock") && shop.rights.have(Verb::Metrics));
        assert!(tokens.find("next").is_some_and(|next| !next.rights.have(Verb::Read)));
        for wrong in ["", "Secret", "secret ", "secre", "secret\0"] {
            assert!(tokens.find(wrong).is_none(), "{wrong}");
        }
        let digits = hex(&hash("secret"));
        assert!(!format!("{shop:?} {tokens:?}").contains(&digits[..8]));
        assert!(parsed("").expect("no tokens").is_empty());
    }

    #[test]
    fn unfit_entries_are_refused_without_their_values() {
        let good = entry("shop", "a", "[]");
        let digits = hex(&hash("b"));
        let of = |name: &str, hash: &str, rights: &str| {
            format!("[[token]]\nname = \"{name}\"\nsha256 = \"{hash}\"\nrights = {rights}\n")
        };
        for bad in [
            of("sh/op", &digits, "[]"),
            of("", &digits, "[]"),
            of("shop", "txn_secret", "[]"),
            of("shop", &digits.to_uppercase(), "[]"),
            of("shop", &digits[..62], "[]"),
            of("shop", &digits, "\"txn_secret\""),
            of("shop", &digits, r#"[{ collections = ["a"], verbs = ["txn_secret"] }]"#),
            of("shop", &digits, r#"[{ collections = ["a"], verbs = ["delete"] }]"#),
            of("shop", &digits, r#"[{ collections = ["a*b"], verbs = ["read"] }]"#),
            of("shop", &digits, r#"[{ verbs = ["read"] }]"#),
            of("shop", &digits, r#"[{ collection = ["a"], verbs = ["read"] }]"#),
            "[[token]]\nname = \"shop\"\ntoken = \"txn_secret\"\n".to_owned(),
            "[[tokens]]\n".to_owned(),
            "txn_secret".to_owned(),
            entry("other", "a", "[]"),
        ] {
            let error = parsed(&format!("{good}{bad}")).expect_err(&bad);
            assert!(!error.contains("txn_secret"), "{error}");
            assert!(error.contains("token 2: ") || error.contains("line "), "{error}");
        }
    }
}
