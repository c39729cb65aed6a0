//! The documents of locks, and their repository.

pub(crate) mod model;
pub(crate) mod repository;
