//! The only access to the store's methods: removes secrets from results.

use std::fmt;
use std::time::Duration;

use txn_store::{Limits, Outcome, Read, Refusal, StoreError};

use crate::parts::Parts;
use crate::secrets::Secrets;

/// Removes secrets from the result of a method.
pub(crate) trait Hide {
    fn hide(self, secrets: &Secrets) -> Self;
}

impl<T> Hide for Result<T, StoreError> {
    fn hide(self, secrets: &Secrets) -> Self {
        self.map_err(|error| secrets.hide_in_error(error))
    }
}

impl<T: Hide> Hide for Vec<T> {
    fn hide(self, secrets: &Secrets) -> Self {
        self.into_iter().map(|each| each.hide(secrets)).collect()
    }
}

impl Hide for Read {
    fn hide(self, secrets: &Secrets) -> Self {
        match self {
            Self::Unavailable(error) => Self::Unavailable(secrets.hide_in_error(error)),
            read => read,
        }
    }
}

impl Hide for Outcome {
    fn hide(self, secrets: &Secrets) -> Self {
        match self {
            Self::Rejected(text) => Self::Rejected(secrets.hide(text)),
            Self::RejectedInDoubt(text) => Self::RejectedInDoubt(secrets.hide(text)),
            Self::Unknown(text) => Self::Unknown(secrets.hide(text)),
            Self::Invalid(Refusal { kind, reason }) => {
                Self::Invalid(Refusal { kind, reason: secrets.hide(reason) })
            }
            outcome => outcome,
        }
    }
}

impl Hide for Limits {
    fn hide(self, _: &Secrets) -> Self {
        self
    }
}

/// A name.
impl Hide for Option<String> {
    fn hide(self, secrets: &Secrets) -> Self {
        self.map(|name| secrets.hide(name))
    }
}

impl Hide for Duration {
    fn hide(self, _: &Secrets) -> Self {
        self
    }
}

/// The store, behind methods that remove secrets.
#[derive(Debug)]
pub(crate) struct Guarded {
    parts: Parts,
}

impl Guarded {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts }
    }

    /// Returns the server that answered at the connect.
    pub(crate) fn server(&self) -> &crate::Server {
        &self.parts.server
    }

    pub(crate) fn transport(&self) -> &impl fmt::Debug {
        &self.parts.transport
    }

    pub(crate) fn nodes_left_out(&self) -> (usize, usize) {
        (self.parts.transport.nodes_left_out(), self.parts.transport.nodes())
    }

    pub(crate) fn get<T: Hide>(&self, get: impl FnOnce(&Parts) -> T) -> T {
        get(&self.parts).hide(self.parts.transport.secrets())
    }

    pub(crate) async fn call<'a, T, F>(&'a self, call: impl FnOnce(&'a Parts) -> F) -> T
    where
        T: Hide,
        F: Future<Output = T>,
    {
        call(&self.parts).await.hide(self.parts.transport.secrets())
    }
}
