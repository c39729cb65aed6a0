//! The gateway, asked as clients ask it.

mod access;
mod bulk;
mod connections;
mod desk;
mod documents;
mod figures;
mod limits;
mod operator;
mod passing;
mod passing_rights;
mod repetitions;
mod reservations;
mod tls;
mod transactions;
