//! The retries of failed requests.

use std::collections::BTreeMap;
use std::time::Duration;

/// The retries of a request that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// None: the request becomes a dead letter at once.
    Never,
    /// Up to [`ProcessorConfig::max_failures`](crate::ProcessorConfig::max_failures) calls.
    ///
    /// With the default settings the retries end within a minute.
    Counted,
    /// Unlimited calls within this time after the first call.
    ///
    /// Afterwards the request becomes a dead letter.
    For(Duration),
}

/// The retries of a request, by the status of its answer.
///
/// | status | default | reason |
/// |---|---|---|
/// | 401, 403 | one day | credentials and rights change without a change of the request |
/// | 404 | one hour | a receiver is being deployed, or a route is missing |
/// | 408, 425, 429 | one day | the receiver asks for another time |
/// | 409, 423 | one hour | another call with the same resource is under way |
/// | 5xx except 501 and 505 | one day | the receiver is down |
/// | any other status, including redirects | never | the receiver refuses the same request again |
///
/// An answer 2xx ends the request. Each retry respects `Retry-After`, up to
/// [`HttpConfig::longest_retry_after`](crate::http::HttpConfig::longest_retry_after).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retries(BTreeMap<u16, Retry>);

const HOUR: Duration = Duration::from_secs(3600);

/// The time of retries while the receiver is down.
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
    /// Retries no status.
    #[must_use]
    pub fn never() -> Self {
        Self(BTreeMap::new())
    }

    /// Sets the retries of these statuses: `[401, 403]`, or `500..=599`.
    #[must_use]
    pub fn with(mut self, statuses: impl IntoIterator<Item = u16>, retry: Retry) -> Self {
        self.0.extend(statuses.into_iter().map(|status| (status, retry)));
        self
    }

    /// The retries of a status.
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
