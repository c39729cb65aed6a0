//! Reads of closures, readers and snapshots, and writes that rest on old reads.

mod dropped;
mod history;
mod old_reads;
mod reading;
