//! Locks, wounds, heartbeats and the bound of concurrent transactions.

mod lifecycle;
mod nested;
mod overload;
mod slow_stores;
