//! The caller of a request, and the checks of its rights.

use std::sync::Arc;

use hyper::header::HeaderMap;

use super::login::login;
use super::rights::Verb;
use super::tokens::{Holder, Tokens};
use crate::documents::action::short;
use crate::http::problem::{Code, Problem};

/// The caller of a request.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// The gateway has no tokens. Each caller may send each request.
    Anyone,
    /// The holder of a token.
    Holder(Arc<Holder>),
}

impl Caller {
    /// Finds the caller by the headers of a request.
    ///
    /// # Errors
    /// [`Code::Login`] without a token of the file.
    pub(crate) fn of(tokens: Option<&Tokens>, headers: &HeaderMap) -> Result<Self, Problem> {
        let Some(tokens) = tokens else { return Ok(Self::Anyone) };
        let unknown = || {
            let detail = "send the header `Authorization: Bearer TOKEN` with a token of this gateway, or in a browser \
                 the token as the password and its name as the user";
            Problem::new(Code::Login, detail)
        };
        let login = login(headers).ok_or_else(unknown)?;
        let holder = tokens.find(&login.token).ok_or_else(unknown)?;
        match login.name.is_none_or(|name| name == holder.name) {
            true => Ok(Self::Holder(holder)),
            false => Err(unknown()),
        }
    }

    /// The name of the token.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Anyone => None,
            Self::Holder(holder) => Some(&holder.name),
        }
    }

    /// Whether the verb holds for a collection or an index. `name` is its name.
    pub(crate) fn may(&self, verb: Verb, name: &str) -> bool {
        match self {
            Self::Anyone => true,
            Self::Holder(holder) => holder.rights.cover(verb, name),
        }
    }

    /// Whether the verb holds for all names with a beginning.
    pub(crate) fn may_all(&self, verb: Verb, beginning: &str) -> bool {
        match self {
            Self::Anyone => true,
            Self::Holder(holder) => holder.rights.cover_all(verb, beginning),
        }
    }

    /// Refuses a request for a collection or an index.
    ///
    /// # Errors
    /// [`Code::Forbidden`], with the verb and the name.
    pub(crate) fn need(&self, verb: Verb, name: &str) -> Result<(), Problem> {
        self.need_one(&[verb], name)
    }

    /// Refuses a request for a name if none of the verbs holds.
    ///
    /// # Errors
    /// [`Code::Forbidden`], with the first verb and the name.
    pub(crate) fn need_one(&self, verbs: &[Verb], name: &str) -> Result<(), Problem> {
        match verbs.iter().any(|verb| self.may(*verb, name)) {
            true => Ok(()),
            false => Err(self.forbidden(verbs.first().copied(), Some(name))),
        }
    }

    /// Refuses a request that may reach each collection and index.
    ///
    /// # Errors
    /// [`Code::Forbidden`], with the verb and `*`.
    pub(crate) fn need_all(&self, verb: Verb) -> Result<(), Problem> {
        match self.may_all(verb, "") {
            true => Ok(()),
            false => Err(self.forbidden(Some(verb), Some("*"))),
        }
    }

    /// Refuses a request without any of the verbs.
    ///
    /// The request is for the gateway, or for no certain collection.
    ///
    /// # Errors
    /// [`Code::Forbidden`], with the first verb.
    pub(crate) fn need_any(&self, verbs: &[Verb]) -> Result<(), Problem> {
        match self {
            Self::Holder(holder) if !verbs.iter().any(|verb| holder.rights.have(*verb)) => {
                Err(self.forbidden(verbs.first().copied(), None))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn forbidden(&self, verb: Option<Verb>, name: Option<&str>) -> Problem {
        let (holder, verb) = (self.name().unwrap_or_default(), verb.map_or("", Verb::text));
        let mut detail = format!("the token {holder} has no right `{verb}`");
        if let Some(name) = name {
            detail += &format!(" on {:?}", short(name));
        }
        let problem = Problem::new(Code::Forbidden, detail).with("verb", verb);
        match name {
            Some(name) => problem.with("collection", short(name)),
            None => problem,
        }
    }
}
