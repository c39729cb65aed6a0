//! HTTP: routes, parameters, answers, problems and connections.

pub(crate) mod connections;
pub(crate) mod form;
pub(crate) mod limits;
pub(crate) mod parameters;
pub(crate) mod problem;
pub(crate) mod reply;
pub(crate) mod route;
pub(crate) mod shape;
pub(crate) mod site;
mod slow_client;
pub(crate) mod tls;
