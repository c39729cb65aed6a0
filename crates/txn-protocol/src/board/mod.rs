//! The board: the order in which processes take their turns at hot documents.

mod document;
mod numbers;
mod order;
mod policy;
mod set;

pub use document::{Entry, LAST_TICKET, MOST_BYTES, MOST_SLOTS, Node, Slot, Ticket};
pub use numbers::Numbers;
pub use order::heads;
pub use policy::{BoardWrite, Look, Policy, Work, Written};
pub use set::{BITMAP_BITS, DocumentSet, KeyHash, MOST_HASHES};
