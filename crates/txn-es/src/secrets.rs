//! What must not be printed, taken out of texts that come from elsewhere: a server, or a proxy before it,
//! may repeat the request in its errors.

use std::fmt;

use txn_store::{Outcome, Read, Refusal, StoreError};

use crate::config::EsAuth;

/// The secrets of a login, in each form in which they may come back.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<String>);

/// What is shorter stands in many words by chance.
const SHORTEST: usize = 4;

const HIDDEN: &str = "***";

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Secrets {
    pub(crate) fn of(auth: &EsAuth) -> Self {
        let mut secrets = auth.secrets();
        secrets.retain(|secret| secret.len() >= SHORTEST);
        // One may be a part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets)
    }

    /// The text without secrets, also where it was cut short within one.
    pub(crate) fn hide(&self, mut text: String) -> String {
        for secret in &self.0 {
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

    pub(crate) fn hide_in_error(&self, error: StoreError) -> StoreError {
        StoreError { message: self.hide(error.message), ..error }
    }

    pub(crate) fn hide_in_read(&self, read: Read) -> Read {
        match read {
            Read::Unavailable(error) => Read::Unavailable(self.hide_in_error(error)),
            read => read,
        }
    }

    pub(crate) fn hide_in_outcome(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Rejected(text) => Outcome::Rejected(self.hide(text)),
            Outcome::RejectedInDoubt(text) => Outcome::RejectedInDoubt(self.hide(text)),
            Outcome::Unknown(text) => Outcome::Unknown(self.hide(text)),
            Outcome::Invalid(Refusal { kind, reason }) => {
                Outcome::Invalid(Refusal { kind, reason: self.hide(reason) })
            }
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_secret_stays() {
        let basic = EsAuth::Basic { user: "shop".to_owned(), password: "hunter2".to_owned() };
        let key = EsAuth::ApiKey("aWQ6aHVudGVyMg==".to_owned()); // id:hunter2
        for (auth, repeated) in [
            (&basic, "Authorization: Basic c2hvcDpodW50ZXIy, and c2hvcDpod... or hunter2"),
            (&key, "Authorization: ApiKey aWQ6aHVudGVyMg==, and aWQ6aHVu... or hunter2"),
        ] {
            let text = Secrets::of(auth).hide(repeated.to_owned());
            let kind = repeated.split(' ').nth(1).unwrap();
            assert_eq!(text, format!("Authorization: {kind} ***, and ***... or ***"));
        }
        let short = EsAuth::Basic { user: "u".to_owned(), password: "a".to_owned() };
        assert_eq!(Secrets::of(&short).hide("an apple".to_owned()), "an apple");
        assert_eq!(format!("{:?}", Secrets::of(&basic)), "***");
    }
}
