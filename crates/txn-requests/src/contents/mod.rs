//! The contents of a request, and their checks.

pub(crate) mod event;
pub(crate) mod number;
pub(crate) mod patch;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod selection;
pub(crate) mod validate;
