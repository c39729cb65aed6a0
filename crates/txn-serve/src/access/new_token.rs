//! New tokens.

use std::fmt;

use super::rights::{Pattern, Right, Verb};
use super::tokens::{Entry, PREFIX, hash, hex, holder};

/// The number of random bytes of a token.
const BYTES: usize = 32;

/// A new token, and its entry for the file of tokens.
#[derive(Clone)]
#[non_exhaustive]
pub struct NewToken {
    /// The token. The file does not have it, and nothing else keeps it.
    pub token: String,
    /// The entry with the hash of the token, in TOML.
    pub entry: String,
}

/// Leaves the token out of logs.
impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("entry", &self.entry).finish_non_exhaustive()
    }
}

impl NewToken {
    /// Makes a token whose verbs hold for the collections and indices.
    ///
    /// `name` is the name of the token.
    ///
    /// The verbs are `read`, `write`, `create`, `pass-reads` and `pass-writes` for collections and
    /// indices, `lock` for categories of locks, and `emit` for topics of events. The verbs
    /// `submit`, `metrics`, `operate` and `act` hold for the gateway, and have no names.
    ///
    /// # Errors
    /// The reason why the name, a pattern or a verb does not fit, or why there are no random bytes.
    pub fn new(name: &str, collections: &[String], verbs: &[String]) -> Result<Self, String> {
        let patterns: Vec<Pattern> =
            collections.iter().cloned().map(Pattern::try_from).collect::<Result<_, _>>()?;
        let verbs: Vec<Verb> = verbs.iter().map(|text| verb(text)).collect::<Result<_, _>>()?;
        let (named, others): (Vec<Verb>, Vec<Verb>) =
            verbs.into_iter().partition(|verb| verb.is_of_names());
        if named.is_empty() && !patterns.is_empty() {
            return Err("no verb is for the collections".to_owned());
        }
        let rights = [Right::new(patterns, named.clone()), Right::new(Vec::new(), others.clone())];
        let is_used = [!named.is_empty(), !others.is_empty()];
        let rights = rights.into_iter().zip(is_used).filter(|(_, is_used)| *is_used);
        let rights: Vec<Right> = rights.map(|(right, _)| right).collect();
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| format!("no random bytes: {error}"))?;
        let token = format!("{PREFIX}{}", hex(&bytes));
        let sha256 = hex(&hash(&token));
        let lines: String = rights.iter().map(line).collect();
        let text =
            format!("[[token]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\nrights = [\n{lines}]\n");
        holder(Entry { name: name.to_owned(), sha256, rights })?;
        Ok(Self { token, entry: text })
    }
}

/// A right as a line of TOML. A list of texts has the same form in JSON.
fn line(right: &Right) -> String {
    let list = |texts: Vec<String>| serde_json::to_string(&texts).unwrap_or_default();
    let (collections, verbs) = right.texts();
    match collections.is_empty() {
        true => format!("  {{ verbs = {} }},\n", list(verbs)),
        false => format!("  {{ collections = {}, verbs = {} }},\n", list(collections), list(verbs)),
    }
}

fn verb(text: &str) -> Result<Verb, String> {
    Verb::ALL.iter().find(|verb| verb.text() == text).copied().ok_or_else(|| {
        let known: Vec<&str> = Verb::ALL.iter().map(|verb| verb.text()).collect();
        format!("{text:?} is no verb: use {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tokens::Tokens;
    use super::*;

    fn made(name: &str, collections: &[&str], verbs: &[&str]) -> Result<NewToken, String> {
        let texts = |of: &[&str]| of.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        NewToken::new(name, &texts(collections), &texts(verbs))
    }

    #[test]
    fn entries_of_new_tokens_fit_one_file() {
        let first = made("shop", &["stock", "order-*"], &["read", "write", "metrics"]);
        let first = first.expect("a token");
        let second = made("probe", &[], &["metrics"]).expect("a token");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens.toml");
        std::fs::write(&path, format!("{}\n{}", first.entry, second.entry)).expect("writes");
        let tokens = Tokens::open(&path).expect("tokens");
        let shop = tokens.find(&first.token).expect("a holder").rights.clone();
        assert!(shop.cover(Verb::Write, "order-1") && !shop.cover(Verb::Create, "stock"));
        assert!(shop.have(Verb::Metrics) && !shop.have(Verb::Operate));
        let probe = tokens.find(&second.token).expect("a holder");
        assert!(probe.rights.have(Verb::Metrics) && !probe.rights.have(Verb::Read));
        assert_eq!((first.token.len(), &first.token[..4]), (68, "txn_"));
        assert_ne!(first.token, second.token);
        for text in [&first.entry, &format!("{first:?}")] {
            assert!(!text.contains(&first.token[4..]), "{text}");
        }
    }

    #[test]
    fn unfit_tokens_are_not_made() {
        for (name, collections, verbs) in [
            ("a b", &["a"][..], &["read"][..]),
            ("a\nb", &["a"], &["read"]),
            ("a", &["a*b"], &["read"]),
            ("a", &["a"], &["delete"]),
            ("a", &[], &["read"]),
            ("a", &["a"], &["metrics"]),
            ("a", &["a"], &[]),
        ] {
            made(name, collections, verbs).expect_err(name);
        }
    }
}
