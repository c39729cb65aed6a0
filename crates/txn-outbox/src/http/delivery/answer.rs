//! Answers: the effect of a status, and the stored part.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use secrecy::ExposeSecret;

use crate::http::secret::SecretString;

/// The maximum number of stored characters per header.
const MOST_HEADER: usize = 256;

/// The stored part of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<String>,
    /// The pause that the answer asks for.
    pub(crate) retry_after: Option<Duration>,
}

impl Answer {
    pub(crate) fn new(
        response: &Response,
        wanted: &BTreeSet<String>,
        secrets: &CallSecrets,
        now_ms: u64,
    ) -> Self {
        let found = response.headers();
        let headers = wanted.iter().filter_map(|name| {
            let text = String::from_utf8_lossy(found.get(name)?.as_bytes());
            let text = secrets.redact(&text).chars().take(MOST_HEADER).collect();
            Some((name.clone(), text))
        });
        Self {
            status: response.status().as_u16(),
            headers: headers.collect(),
            body: None,
            retry_after: retry_after(found, now_ms),
        }
    }

    /// Whether the request is done.
    pub(crate) fn is_done(&self) -> bool {
        (200..=299).contains(&self.status)
    }

    /// The reason why the request is not done.
    pub(crate) fn why(&self) -> String {
        let status = self.status;
        let named = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let name = named.unwrap_or("a status without a name");
        match status {
            300..=399 => format!("answered {status} {name}: redirects are not followed"),
            _ => format!("answered {status} {name}"),
        }
    }
}

/// The secrets of one call. The stored result must not contain them.
#[derive(Debug, Default)]
pub(crate) struct CallSecrets(pub(crate) Vec<SecretString>);

impl CallSecrets {
    /// Replaces the secrets in a text.
    ///
    /// The method finds secrets in plain text: whole, without their scheme, or cut off at the end.
    pub(crate) fn redact(&self, text: &str) -> String {
        let whole = self.0.iter().map(ExposeSecret::expose_secret);
        // The answer may repeat "Bearer abc" as "abc".
        let without_scheme =
            |secret: &'_ str| secret.split_once(' ').map(|(_, rest)| rest.to_owned());
        let mut secrets: Vec<String> = whole
            .flat_map(|secret| [Some(secret.to_owned()), without_scheme(secret)])
            .flatten()
            .collect();
        secrets.retain(|secret| !secret.is_empty());
        // Longest first: a secret that is a prefix of another one must not leave the rest of it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let mut text = text.to_owned();
        if let Some(cut) = secrets.iter().filter_map(|secret| cut_off(&text, secret)).max() {
            text.truncate(text.len() - cut);
            text.push_str(REDACTED);
        }
        secrets.iter().fold(text, |text, secret| text.replace(secret.as_str(), REDACTED))
    }

    pub(crate) fn longest(&self) -> usize {
        self.0.iter().map(|secret| secret.expose_secret().len()).max().unwrap_or(0)
    }
}

const REDACTED: &str = "[secret]";

/// Fewer bytes of a secret reveal nothing.
const LEAST_PREFIX: usize = 4;

/// The number of bytes at the end of `text` that begin `secret`.
fn cut_off(text: &str, secret: &str) -> Option<usize> {
    let lengths = (LEAST_PREFIX..secret.len()).rev();
    lengths
        .filter_map(|length| secret.get(..length))
        .find(|start| text.ends_with(start))
        .map(str::len)
}

/// The pause that an answer asks for: seconds, or a date.
fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(UNIX_EPOCH + Duration::from_millis(now_ms)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_secrets_are_removed() {
        let secret = |text: &str| SecretString::from(text.to_owned());
        let secrets = CallSecrets(vec![secret("token"), secret("Bearer token-and-more")]);
        for (text, blotted) in [
            ("Bearer token-and-more!", "[secret]!"),
            (r#"{"error":"bad token-and-more"}"#, r#"{"error":"bad [secret]"}"#),
            ("a token", "a [secret]"),
            ("cut Bearer token-and-m", "cut [secret]"),
            ("cut: token-and", "cut: [secret]"),
            ("nothing of it", "nothing of it"),
        ] {
            assert_eq!(secrets.redact(text), blotted, "{text}");
        }
    }

    #[test]
    fn pauses_are_seconds_or_dates() {
        let of = |text: &str| {
            let headers = [(RETRY_AFTER, text.parse().unwrap())].into_iter().collect();
            retry_after(&headers, 784_111_777_000 - 90_000)
        };
        assert_eq!(of("120"), Some(Duration::from_secs(120)));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(90)));
        assert_eq!(of("Sun, 06 Nov 1983 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!((of("soon"), of("-1")), (None, None));
    }

    #[test]
    fn secrets_are_removed_from_texts() {
        let secrets = CallSecrets(vec!["Bearer x".into(), "".into(), "word".into()]);
        assert_eq!(secrets.redact("a Bearer x b words"), "a [secret] b [secret]s");
        assert_eq!(secrets.longest(), 8);
    }
}
