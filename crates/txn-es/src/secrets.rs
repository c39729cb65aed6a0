//! Removes secrets from texts of other programs.
//!
//! A server, or a proxy, may repeat the request in its errors. Texts are cleaned at two points. The
//! transport cleans failures and failed answers, before any other code reads or logs them.
//! `Guarded` is the only access to the methods of the store, and cleans their results: errors of
//! single documents inside 200 answers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use secrecy::{ExposeSecret, SecretString};
use txn_store::StoreError;

/// The secrets of logins, in each form that a server repeats. Clones share the secrets.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<RwLock<VecDeque<SecretString>>>);

/// The minimum length: a shorter text appears in many words by chance.
const SHORTEST: usize = 4;

/// The number of secrets of changing logins that are kept.
///
/// An answer that is under way may repeat an old login.
const MOST: usize = 64;

const HIDDEN: &str = "***";

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Secrets {
    pub(crate) fn learn(&self, secrets: impl IntoIterator<Item = SecretString>) {
        let mut known = self.0.write();
        for secret in secrets {
            let text = secret.expose_secret();
            if text.len() < SHORTEST || known.iter().any(|known| known.expose_secret() == text) {
                continue;
            }
            if known.len() == MOST {
                known.pop_front();
            }
            known.push_back(secret);
        }
    }

    /// Returns the text without secrets, even if a secret was cut short.
    pub(crate) fn hide(&self, text: String) -> String {
        let known = self.0.read();
        hide_each(text, known.iter().map(ExposeSecret::expose_secret))
    }

    pub(crate) fn hide_in_error(&self, error: StoreError) -> StoreError {
        StoreError { message: self.hide(error.message), ..error }
    }

    /// Returns a body without secrets; `more` are the secrets of this request.
    ///
    /// Only for bodies without documents.
    pub(crate) fn hide_in_body<'a>(
        &self,
        body: &Bytes,
        more: impl Iterator<Item = &'a str>,
    ) -> Bytes {
        let text = String::from_utf8_lossy(body).into_owned();
        hide_each(self.hide(text), more.filter(|secret| secret.len() >= SHORTEST)).into()
    }
}

fn hide_each<'a>(mut text: String, secrets: impl Iterator<Item = &'a str>) -> String {
    let mut secrets: Vec<&str> = secrets.collect();
    // One secret may be a part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        if text.contains(secret) {
            text = text.replace(secret, HIDDEN);
        }
        let ends = secret.char_indices().map(|(at, _)| at).filter(|at| *at >= SHORTEST);
        for end in ends.rev() {
            if text.contains("...") {
                text = text.replace(&format!("{}...", &secret[..end]), "***...");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EsAuth;

    fn secrets(auth: &EsAuth) -> Secrets {
        let secrets = Secrets::default();
        secrets.learn(auth.secrets());
        secrets
    }

    #[test]
    fn no_form_of_a_secret_stays() {
        let basic = EsAuth::basic("shop", "hunter2");
        let key = EsAuth::api_key("aWQ6aHVudGVyMg=="); // id:hunter2
        for (auth, repeated) in [
            (&basic, "Authorization: Basic c2hvcDpodW50ZXIy, and c2hvcDpod... or hunter2"),
            (&key, "Authorization: ApiKey aWQ6aHVudGVyMg==, and aWQ6aHVu... or hunter2"),
        ] {
            let text = secrets(auth).hide(repeated.to_owned());
            let kind = repeated.split(' ').nth(1).unwrap();
            assert_eq!(text, format!("Authorization: {kind} ***, and ***... or ***"));
        }
        let short = EsAuth::basic("u", "a");
        assert_eq!(secrets(&short).hide("an apple".to_owned()), "an apple");
        assert_eq!(format!("{:?}", secrets(&basic)), "***");
    }

    #[test]
    fn changing_logins_are_kept_up_to_a_limit() {
        let secrets = secrets(&EsAuth::bearer("first-token"));
        for n in 0..MOST {
            assert_eq!(secrets.hide("first-token".to_owned()), HIDDEN, "{n}");
            secrets.learn(EsAuth::bearer(format!("token-{n}-of-many")).secrets());
        }
        assert_eq!(secrets.hide("first-token".to_owned()), "first-token");
        assert_eq!(secrets.hide(format!("token-{}-of-many", MOST - 1)), HIDDEN);
    }
}
