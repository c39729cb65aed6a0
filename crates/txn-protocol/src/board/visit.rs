//! The values of a board that grow without a bound.
//!
//! A model renames these values, which keeps its states finite.

use std::time::Duration;

use txn_store::Version;

use crate::board::document::{Slot, Ticket};

/// A value that counts only by its differences to other values.
#[derive(Debug)]
pub enum Part<'a> {
    /// A moment.
    Time(&'a mut Duration),
    /// The order of a wish, a virtual time in microseconds.
    Ticket(&'a mut Ticket),
    /// The version of a slot.
    Version(&'a mut Version),
}

impl Slot {
    /// Visits the ticket.
    pub fn visit(&mut self, visit: &mut dyn FnMut(Part<'_>)) {
        if let Some((_, entry)) = &mut self.wish {
            visit(Part::Ticket(&mut entry.ticket));
        }
    }
}
