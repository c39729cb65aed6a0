//! The tests of the engine on shared servers, in one program.

mod live_bad_worlds;
mod live_conformance;
mod live_engine;
mod live_processes;
mod live_proxy;
