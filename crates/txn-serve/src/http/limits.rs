//! Limits of running requests, and of their bodies and answers. No request waits for a permit.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::header::{EXPECT, HeaderMap};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{Code, Problem};
use crate::config::ServeConfig;

/// The unit of the bytes of bodies and answers.
const UNIT: usize = 1_024;

/// The largest answer that does not count. So large bodies of others refuse no small read.
const SMALL: usize = 16 << 10;

/// The maximum number of documents that are read at once. The budget is checked after each read.
pub(crate) const ONE_READ: usize = 500;

/// How many times the largest body is discarded before the connection closes.
const DISCARDED: usize = 4;

/// The permitted requests, and the bytes of their bodies and answers.
#[derive(Debug)]
pub(crate) struct Limits {
    requests: Arc<Semaphore>,
    /// Bytes of bodies and answers, in units.
    units: Arc<Semaphore>,
    max_body: usize,
    max_read: usize,
    body_timeout: Duration,
}

/// A body, and its share of the bytes of all bodies.
#[derive(Debug)]
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    _units: OwnedSemaphorePermit,
}

/// The share of an answer in the bytes of all answers. The bytes include those of all bodies.
#[derive(Debug)]
pub(crate) struct Share {
    units: Arc<Semaphore>,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Takes more bytes. Returns whether there were enough.
    pub(crate) fn grow(&self, more: usize) -> bool {
        let mut held = self.held.lock();
        let bytes = held.bytes.saturating_add(more);
        let has = held.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let counted = if bytes <= SMALL { 0 } else { bytes };
        let missing = counted.div_ceil(UNIT).saturating_sub(has);
        let Ok(missing) = u32::try_from(missing) else { return false };
        let Ok(permit) = self.units.clone().try_acquire_many_owned(missing) else { return false };
        held.bytes = bytes;
        match &mut held.permit {
            Some(all) => all.merge(permit),
            none => *none = Some(permit),
        }
        true
    }

    /// Takes what is missing to these bytes. Returns whether there were enough.
    pub(crate) fn grow_to(&self, bytes: usize) -> bool {
        let held = self.held.lock().bytes;
        self.grow(bytes.saturating_sub(held))
    }

    /// Binds the share to an answer until the client takes it.
    ///
    /// The client must have taken all bytes.
    pub(crate) fn bind(&self, bytes: Bytes) -> Bytes {
        match self.held.lock().permit.take() {
            Some(permit) => Bytes::from_owner(Bound { bytes, _permit: permit }),
            None => bytes,
        }
    }
}

/// Bytes that hold their share.
struct Bound {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Bound {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes of contents that a request may read, while it runs.
#[derive(Debug)]
pub(crate) struct ReadBudget {
    share: Share,
    most: usize,
}

impl ReadBudget {
    /// Reserves bytes for all contents that were read so far.
    ///
    /// # Errors
    /// [`Code::LargeAnswer`] above the limit, and [`Code::Overloaded`] if other requests use the
    /// bytes.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), Problem> {
        let most = self.most;
        if bytes > most {
            let detail = format!(
                "the documents have {bytes} bytes or more, and a request reads at most {most}"
            );
            return Err(Problem::new(Code::LargeAnswer, detail));
        }
        match self.share.grow_to(bytes) {
            true => Ok(()),
            false => Err(Problem::overloaded_by_bytes()),
        }
    }
}

impl Limits {
    pub(crate) fn new(config: &ServeConfig) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(u32::MAX as usize)));
        Self {
            requests: semaphore(config.max_requests),
            units: semaphore(config.max_buffered.div_ceil(UNIT)),
            max_body: config.max_body,
            // More bytes would be refused as an overload that passes.
            max_read: config.max_answer.min(config.max_buffered),
            body_timeout: config.body_timeout,
        }
    }

    /// Admits a request, which holds the permit while it runs.
    pub(crate) fn admit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.requests.clone().try_acquire_owned().map_err(|_| {
            let detail = "the gateway runs as many requests as it may: send it again later";
            Problem::new(Code::Overloaded, detail)
        })
    }

    /// Receives a body.
    pub(crate) async fn receive<B>(&self, mut body: Pin<&mut B>) -> Result<Buffered, Problem>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let most = u64::try_from(self.max_body).unwrap_or(u64::MAX);
        let length = body.size_hint().upper().unwrap_or(most);
        if length > most {
            return Err(self.too_large());
        }
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let units = self.units.clone().try_acquire_many_owned(units);
        let units = units.map_err(|_| Problem::overloaded_by_bytes())?;
        let received = Limited::new(body.as_mut(), self.max_body).collect();
        match tokio::time::timeout(self.body_timeout, received).await {
            Ok(Ok(received)) => Ok(Buffered { bytes: received.to_bytes(), _units: units }),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(self.too_large()),
            Ok(Err(_)) => Err(Problem::new(Code::Invalid, "the body broke off")),
            Err(_) => {
                let detail = format!("the body did not arrive within {:?}", self.body_timeout);
                Err(Problem::new(Code::SlowBody, detail))
            }
        }
    }

    /// Discards the rest of the body of a refused request, up to a size and a time.
    ///
    /// Most clients read no answer before they have sent the body. A client that asks first
    /// (`Expect: 100-continue`) sends no body after a refusal before the first byte.
    pub(crate) async fn discard_after<B>(
        &self,
        problem: &Problem,
        headers: &HeaderMap,
        mut body: Pin<&mut B>,
    ) where
        B: Body<Data = Bytes>,
    {
        let length = body.size_hint().upper();
        // Only the end of a body without a length is unknown before it is read.
        let was_asked_for = problem.code() == Code::TooLarge && length.is_none();
        let is_kept_back = headers.contains_key(EXPECT) && !was_asked_for;
        if is_kept_back || problem.code() == Code::SlowBody {
            return;
        }
        let most = self.max_body.saturating_mul(DISCARDED);
        let discard = async {
            let mut bytes = 0;
            while let Some(Ok(frame)) = body.frame().await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > most {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(self.body_timeout, discard).await;
    }

    /// A share for an answer that arrives in parts.
    pub(crate) fn share(&self) -> Share {
        Share { units: self.units.clone(), held: Mutex::new(Held { bytes: 0, permit: None }) }
    }

    /// A budget for the contents that a request reads.
    pub(crate) fn read_budget(&self) -> ReadBudget {
        ReadBudget { share: self.share(), most: self.max_read }
    }

    fn too_large(&self) -> Problem {
        let detail = format!("the body has more than {} bytes", self.max_body);
        Problem::new(Code::TooLarge, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_holds_its_share_until_it_is_taken() {
        let config = ServeConfig::default().with_max_body(1_024).with_max_buffered(40 << 10);
        let limits = Limits::new(&config);
        let share = limits.share();
        assert!(share.grow(SMALL));
        assert_eq!(limits.units.available_permits(), 40);
        assert!(share.grow(1) && share.grow(1_000), "units are free");
        assert_eq!(limits.units.available_permits(), 23);
        assert!(!share.grow(24 << 10), "24 more units are not free");
        let bytes = share.bind(Bytes::from_static(b"answer"));
        drop(share);
        let part = bytes.slice(1..3);
        drop(bytes);
        assert_eq!(limits.units.available_permits(), 23);
        assert_eq!(&*part, b"ns");
        drop(part);
        assert_eq!(limits.units.available_permits(), 40);
    }
}
