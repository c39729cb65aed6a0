//! The calls of the dispatcher, and what their answers mean.

pub(crate) mod address;
pub(crate) mod answer;
pub(crate) mod call;
pub(crate) mod call_limits;
pub(crate) mod retries;
pub(crate) mod tls;
