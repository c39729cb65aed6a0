//! Requests of the peer, in sequence, until its process dies.

use std::sync::atomic::{AtomicI64, Ordering};

use reqwest::Method;
use serde_json::Value;

use crate::Failure;

/// The process died: nothing more is sent, and the answer is lost.
#[derive(Debug)]
pub struct Killed;

impl std::fmt::Display for Killed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the process was killed")
    }
}

impl std::error::Error for Killed {}

/// The number of requests after which a process dies.
#[derive(Debug)]
pub struct Fuse {
    left: AtomicI64,
    /// Whether the last request is still carried out. Its answer is lost.
    sends_the_last: bool,
}

impl Fuse {
    /// Answers this many requests. The next one is sent without an answer, or not sent.
    #[must_use]
    pub fn new(answered: u32, sends_the_last: bool) -> Self {
        Self { left: AtomicI64::new(answered.into()), sends_the_last }
    }
}

/// An answer of the server.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

#[derive(Debug)]
pub(crate) struct Wire {
    client: reqwest::Client,
    url: String,
    fuse: Option<Fuse>,
}

impl Wire {
    pub(crate) fn new(url: &str, fuse: Option<Fuse>) -> Result<Self, Failure> {
        Ok(Self { client: crate::http()?, url: url.trim_end_matches('/').to_owned(), fuse })
    }

    /// Sends one request. A refusal is an error, except 404 and 409.
    ///
    /// 404 is a missing document, 409 another version than the expected one.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Failure> {
        let left = self.fuse.as_ref().map_or(1, |fuse| fuse.left.fetch_sub(1, Ordering::Relaxed));
        let sends = left > 0 || left == 0 && self.fuse.as_ref().is_some_and(|f| f.sends_the_last);
        if !sends {
            return Err(Killed.into());
        }
        let mut request = self.client.request(method, format!("{}/{path}", self.url));
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        let text = answer.text().await?;
        if left == 0 {
            return Err(Killed.into());
        }
        if status >= 400 && status != 404 && status != 409 {
            return Err(format!("{path}: {status} {text}").into());
        }
        Ok(Answer { status, body: serde_json::from_str(&text)? })
    }
}
