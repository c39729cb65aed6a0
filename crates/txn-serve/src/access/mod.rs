//! Logins by token, and the rights of callers.

pub(crate) mod caller;
mod login;
mod new_token;
pub(crate) mod rights;
pub(crate) mod tokens;

pub use new_token::NewToken;
pub use tokens::Tokens;
