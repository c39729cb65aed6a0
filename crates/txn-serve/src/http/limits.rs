//! Limits of running requests and of their bodies. No request waits in a queue.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{Code, Problem};
use crate::config::ServeConfig;

/// The unit of the bytes of bodies.
const UNIT: usize = 1_024;

/// The requests that may run, and the bytes that their bodies may have.
#[derive(Debug)]
pub(crate) struct Limits {
    requests: Arc<Semaphore>,
    /// Bytes of bodies, in units.
    units: Arc<Semaphore>,
    max_body: usize,
    body_timeout: Duration,
}

/// A body, and its share of the bytes of all bodies.
#[derive(Debug)]
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    _units: OwnedSemaphorePermit,
}

impl Limits {
    pub(crate) fn new(config: &ServeConfig) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(u32::MAX as usize)));
        Self {
            requests: semaphore(config.max_requests),
            units: semaphore(config.max_buffered.div_ceil(UNIT)),
            max_body: config.max_body,
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
    pub(crate) async fn receive<B>(&self, body: B) -> Result<Buffered, Problem>
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
        let units = self.units.clone().try_acquire_many_owned(units).map_err(|_| {
            let detail = "the bodies of the running requests are too large: send it again later";
            Problem::new(Code::Overloaded, detail)
        })?;
        let received = Limited::new(body, self.max_body).collect();
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

    fn too_large(&self) -> Problem {
        let detail = format!("the body has more than {} bytes", self.max_body);
        Problem::new(Code::TooLarge, detail)
    }
}
