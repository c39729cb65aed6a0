//! The machinery of simulated runs, for this crate and the suite `tests/simulation`.
//!
//! No part of the API.

mod drawn;
mod process;
mod virtual_time;

pub use drawn::draw_faults;
pub use process::{
    ClockOf, EPOCH, EntropyOf, Log, Planned, Process, Recording, StoreOf, is_planned,
    panic_as_planned,
};
pub use virtual_time::in_virtual_time;
