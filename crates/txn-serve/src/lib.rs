#![doc = include_str!("../README.md")]

mod access;
mod asked;
mod audit;
mod backend;
mod config;
mod console;
mod documents;
mod exchange;
mod figures;
mod gateway;
mod http;
mod openapi;
pub mod operator;
mod passing;
mod samples;
mod server;
mod systems;
mod transactions;

pub use access::{NewToken, Tokens};
pub use config::{RenderMetrics, ServeConfig};
pub use http::tls::Tls;
pub use server::Server;
