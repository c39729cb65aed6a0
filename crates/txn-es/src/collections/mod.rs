//! Collections: opened, created and changed.

pub(crate) mod changes;
pub(crate) mod creation;
pub(crate) mod creator;
pub(crate) mod opening;
pub(crate) mod read_check;
pub(crate) mod template_requests;
