//! Answers of the servers: what their texts and errors mean. No I/O.

pub(crate) mod blocks;
pub(crate) mod classify;
pub(crate) mod reason;
pub(crate) mod text;
