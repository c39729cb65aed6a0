#![doc = include_str!("../README.md")]

mod asked;
mod audit;
mod backend;
mod config;
mod documents;
mod figures;
mod gateway;
mod http;
mod openapi;
mod passing;
mod server;
mod transactions;

pub use config::{RenderMetrics, ServeConfig};
pub use server::Server;
