//! Rights: verbs, and the patterns of their collections and indices.

use std::fmt;

use serde::Deserialize;
use txn_outbox::http::{HttpRequest, Method};

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $of_names:literal;)*) => {
        /// The effect that a caller may have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        pub(crate) enum Verb {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl Verb {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            pub(crate) fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Whether the verb holds for collections or indices. Others hold for the gateway.
            pub(crate) fn is_of_names(self) -> bool {
                match self { $(Self::$name => $of_names),* }
            }
        }
    };
}

verbs! {
    /// Reads documents of collections.
    Read = "read", true;
    /// Changes documents of collections.
    Write = "write", true;
    /// Creates collections.
    Create = "create", true;
    /// Takes, renews and releases locks of categories.
    Lock = "lock", true;
    /// Emits events of topics.
    Emit = "emit", true;
    /// Has HTTP requests sent to origins after a commit.
    Call = "call", true;
    /// Sends reads of indices to the servers.
    PassReads = "pass-reads", true;
    /// Sends writes of indices to the servers.
    PassWrites = "pass-writes", true;
    /// Submits requests, and cancels them.
    Submit = "submit", false;
    /// Reads the metrics.
    Metrics = "metrics", false;
    /// Sees the transactions, locks and processes of the domain.
    Operate = "operate", false;
    /// Aborts and recovers transactions in the console.
    Act = "act", false;
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The name of a collection or an index, or their beginning.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Pattern {
    name: String,
    is_prefix: bool,
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (name, is_prefix) = match text.strip_suffix('*') {
            Some(name) => (name.to_owned(), true),
            None => (text, false),
        };
        if name.is_empty() && !is_prefix {
            return Err("a pattern is empty".to_owned());
        }
        match name.contains(|c: char| c.is_whitespace() || "*?,".contains(c)) {
            true => Err("a pattern is one name, or the beginning of names and one `*`".to_owned()),
            false => Ok(Self { name, is_prefix }),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.is_prefix { "*" } else { "" })
    }
}

impl Pattern {
    fn covers(&self, name: &str) -> bool {
        match self.is_prefix {
            true => name.starts_with(&self.name),
            false => name == self.name,
        }
    }

    /// Refuses a pattern that covers no origin.
    fn check_origin(&self) -> Result<(), String> {
        let origin = || HttpRequest::new(Method::Post, &self.name).origin();
        match self.is_prefix || origin().as_ref() == Some(&self.name) {
            true => Ok(()),
            false => Err(format!(
                "{self} is no origin with a port, such as https://hooks.example.com:443, so `call` allows nothing"
            )),
        }
    }

    /// Whether the pattern covers all names with a beginning.
    fn covers_all(&self, beginning: &str) -> bool {
        self.is_prefix && beginning.starts_with(&self.name)
    }
}

/// A right: all its verbs hold for all its collections.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Right {
    #[serde(default)]
    collections: Vec<Pattern>,
    verbs: Vec<Verb>,
}

impl Right {
    pub(crate) fn new(collections: Vec<Pattern>, verbs: Vec<Verb>) -> Self {
        Self { collections, verbs }
    }

    /// Returns the reason why the right is a mistake.
    ///
    /// The right says nothing, or less than its author may think.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(first) = self.verbs.first() else {
            return Err("a right has no verbs".to_owned());
        };
        if let Some(other) = self.verbs.iter().find(|it| it.is_of_names() != first.is_of_names()) {
            return Err(format!(
                "the verbs {first} and {other} need two rights: one of them has no collections"
            ));
        }
        match (first.is_of_names(), self.collections.is_empty()) {
            (true, true) => Err(format!("the verb {first} needs collections")),
            (false, false) => {
                Err(format!("the verb {first} holds for the gateway, and has no collections"))
            }
            _ if self.has(Verb::Call) => {
                self.collections.iter().try_for_each(Pattern::check_origin)
            }
            _ => Ok(()),
        }
    }

    /// The texts of the collections and the verbs.
    pub(super) fn texts(&self) -> (Vec<String>, Vec<String>) {
        let collections = self.collections.iter().map(Pattern::to_string).collect();
        (collections, self.verbs.iter().map(Verb::to_string).collect())
    }

    fn has(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }
}

/// The rights of one token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(Vec<Right>);

impl Rights {
    pub(crate) fn new(rights: Vec<Right>) -> Result<Self, String> {
        rights.iter().try_for_each(Right::check)?;
        Ok(Self(rights))
    }

    /// Whether the verb holds for a name.
    pub(crate) fn cover(&self, verb: Verb, name: &str) -> bool {
        self.any(verb, |pattern| pattern.covers(name))
    }

    /// Whether the verb holds for all names with a beginning.
    pub(crate) fn cover_all(&self, verb: Verb, beginning: &str) -> bool {
        self.any(verb, |pattern| pattern.covers_all(beginning))
    }

    /// Whether the verb holds for the gateway, or for any name.
    pub(crate) fn have(&self, verb: Verb) -> bool {
        self.0.iter().any(|right| right.has(verb))
    }

    fn any(&self, verb: Verb, covers: impl Fn(&Pattern) -> bool) -> bool {
        self.0
            .iter()
            .filter(|right| right.has(verb))
            .flat_map(|right| &right.collections)
            .any(covers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::try_from(text.to_owned()).expect("a pattern")
    }

    fn right(patterns: &[&str], verbs: &[Verb]) -> Right {
        Right::new(patterns.iter().map(|text| pattern(text)).collect(), verbs.to_vec())
    }

    #[test]
    fn pattern_covers_one_name_or_one_beginning() {
        let rights = Rights::new(vec![
            right(&["stock", "order-*"], &[Verb::Read, Verb::Write]),
            right(&["*"], &[Verb::PassReads]),
        ]);
        let rights = rights.expect("rights");
        for name in ["stock", "order-", "order-1"] {
            assert!(rights.cover(Verb::Read, name) && rights.cover(Verb::Write, name), "{name}");
        }
        for name in ["stock-1", "Stock", "order", "stoc", "", "*", "order*"] {
            assert!(!rights.cover(Verb::Read, name), "{name}");
        }
        assert!(rights.cover(Verb::PassReads, "x") && rights.cover_all(Verb::PassReads, ""));
        assert!(rights.cover_all(Verb::Read, "order-1") && rights.cover_all(Verb::Read, "order-"));
        assert!(!rights.cover_all(Verb::Read, "order") && !rights.cover_all(Verb::Read, "stock"));
        assert!(!rights.cover(Verb::Create, "stock") && !rights.have(Verb::Operate));
    }

    #[test]
    fn unfit_patterns_and_rights_are_refused() {
        for text in ["", "a*b", "**", "a,b", "a b", "a?", "*a"] {
            Pattern::try_from(text.to_owned()).expect_err(text);
        }
        for unfit in [
            right(&["a"], &[]),
            right(&[], &[Verb::Read]),
            right(&["a"], &[Verb::Metrics]),
            right(&["a"], &[Verb::Read, Verb::Operate]),
            right(&[], &[Verb::Metrics, Verb::Read]),
        ] {
            unfit.check().expect_err("unfit");
        }
        right(&[], &[Verb::Metrics, Verb::Operate]).check().expect("fits");
    }
}
