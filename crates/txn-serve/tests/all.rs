//! The gateway, asked as clients ask it.

mod access;
mod bulk;
mod connections;
mod console;
mod console_actions;
mod desk;
mod documents;
mod events;
mod figures;
mod http_requests;
mod limits;
mod locks;
mod openapi;
mod operator;
mod passing;
mod passing_rights;
mod repetitions;
mod requests;
mod reservations;
mod tls;
mod transactions;
