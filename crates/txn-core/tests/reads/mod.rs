//! Reads of closures, readers and snapshots; writes after old reads.

mod dropped;
mod history;
mod old_reads;
mod reading;
