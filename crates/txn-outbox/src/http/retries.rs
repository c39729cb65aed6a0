//! Which requests are called again that were not done, and for how long.

use std::collections::BTreeMap;
use std::time::Duration;

/// Whether a request is called again that was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// The request is a dead letter at once.
    Never,
    /// As often as [`ProcessorConfig::max_failures`](crate::ProcessorConfig::max_failures) says. With the default settings that is
    /// over within a minute.
    Counted,
    /// However often, for so long after its first call. Then the request is a dead letter.
    For(Duration),
}

/// Whether a request is called again, by the status of its answer. 2xx is done.
///
/// | status | default | because |
/// |---|---|---|
/// | 401, 403 | one day | credentials are renewed, and rights are given, without the request being at fault |
/// | 404 | one hour | a receiver is being deployed, or a route is missing |
/// | 408, 425, 429 | one day | the receiver asks for another time |
/// | 409, 423 | one hour | another call with the same resource is under way |
/// | 5xx but 501 and 505 | one day | the receiver is down |
/// | all others, redirects among them | never | the same request is refused again |
///
/// `Retry-After` is kept to with each status that is tried again, up to
/// [`HttpConfig::longest_retry_after`](crate::http::HttpConfig::longest_retry_after).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retries(BTreeMap<u16, Retry>);

const HOUR: Duration = Duration::from_secs(3600);

/// For how long a request is called again whose receiver is down.
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

impl Default for Retries {
    fn default() -> Self {
        Self::never()
            .with([401, 403, 408, 425, 429], Retry::For(DAY))
            .with([404, 409, 423], Retry::For(HOUR))
            .with(500..=599, Retry::For(DAY))
            .with([501, 505], Retry::Never)
    }
}

impl Retries {
    /// No status is tried again.
    #[must_use]
    pub fn never() -> Self {
        Self(BTreeMap::new())
    }

    /// Sets what follows on these statuses: `[401, 403]`, or `500..=599`.
    #[must_use]
    pub fn with(mut self, statuses: impl IntoIterator<Item = u16>, retry: Retry) -> Self {
        self.0.extend(statuses.into_iter().map(|status| (status, retry)));
        self
    }

    /// What follows on a status.
    #[must_use]
    pub fn of(&self, status: u16) -> Retry {
        self.0.get(&status).copied().unwrap_or(Retry::Never)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_retry() {
        let retries = Retries::default();
        for (statuses, retry) in [
            (&[401, 403, 408, 425, 429, 500, 502, 503, 504, 599][..], Retry::For(DAY)),
            (&[404, 409, 423], Retry::For(HOUR)),
            (&[100, 199, 301, 302, 307, 308, 400, 402, 405, 410, 422, 501, 505, 600], Retry::Never),
        ] {
            for status in statuses {
                assert_eq!(retries.of(*status), retry, "{status}");
            }
        }
        let own = retries.with([400], Retry::Counted).with(500..=599, Retry::Never);
        assert_eq!((own.of(400), own.of(503)), (Retry::Counted, Retry::Never));
    }
}
