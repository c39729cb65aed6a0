//! Anomalies and histories on servers, in one program.

mod live_anomalies;
mod live_histories;
