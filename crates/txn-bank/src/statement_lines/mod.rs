//! Statements of accounts, and their lines.

pub(crate) mod line_reader;
pub(crate) mod statement;
pub(crate) mod statements;
