//! All tests of locks that need no server, as one program. Separate programs would link slowly.

mod fairness;
mod faults;
mod leases;
mod locks;
mod scenarios;
