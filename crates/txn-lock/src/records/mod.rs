//! The documents of locks, and their repository.

mod lock_name;
pub(crate) mod model;
pub(crate) mod repository;
