//! Anomalies, histories and their check where no server is needed, in one program: each program of its own would be linked with everything below.

mod anomalies_memory;
mod anomalies_redb;
mod checker;
mod histories;
mod sessions;
