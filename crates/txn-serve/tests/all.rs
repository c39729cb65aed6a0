//! The gateway, asked as clients ask it.

mod bulk;
mod connections;
mod desk;
mod documents;
mod figures;
mod limits;
mod passing;
mod repetitions;
mod transactions;
