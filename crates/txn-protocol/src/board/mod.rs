//! The board: the order in which processes take turns at hot documents.
//!
//! Wound-wait alone lets processes starve each other: four processes with 8 clients each commit
//! 0.10 of what one of them commits alone. So a process that loses documents to another process
//! writes a *wish* on the board of the domain. A wish has a ticket, and the hashes of the documents
//! that the transactions of the process want. Processes lock in the order of the tickets (Lamport's
//! bakery). With the board the four processes commit 0.89 of one process in the simulation, and
//! about 0.65 on a server. `tests/hot-documents` simulates processes on this module, and prints the
//! measurements of the present numbers.
//!
//! The board is a hint and guards no write. A lost, late, damaged or arbitrary board costs order,
//! and no safety.
//!
//! # Documents
//!
//! The board has at most [`MOST_SLOTS`] documents, the *slots*. A slot holds the wish of one
//! process, and only this process writes the slot, over the version that it last wrote or read. A
//! poll ([`Look`]) reads the used slots and two more in one request, and the first poll reads all.
//!
//! Two alternatives were rejected. One shared document with conditional writes starves a slow
//! process. The document changes 70 times per second, and a round trip of 300 ms always meets a
//! conflict. One shared document with unconditional writes loses entries, and needs a write that
//! the store does not have. With processes of equal speed, the throughput of all three designs is
//! the same within 3 %.
//!
//! # Rules
//!
//! 1. **Wish.** A process writes a wish if a transaction lost a document 5 ms plus three round
//!    trips ago. A process also writes a wish if another wish names one of its documents. The first
//!    ticket follows the first poll, which shows the other processes and measures the round trip.
//!    New transactions widen the set and keep the ticket. A process without work removes its wish.
//! 2. **Order.** A wish has its turn if it shares no document with an earlier wish that has its
//!    turn ([`heads`]). A process locks no document of such a wish, and no document of its own wish
//!    while the wish waits.
//! 3. **No lock while waiting.** A process that waits for the board releases its locks and applies
//!    its commits. Nested attempts, and those with locks that their callers commit by hand, keep
//!    their locks and do not wait.
//! 4. **Turn.** A turn lasts 20 round trips of the fastest process from the first lock on, between
//!    10 ms and 100 ms, and at least one commit. A turn may be longer if the turns of all processes
//!    fit into one second. A process with fewer clients or a smaller stride has a shorter turn in
//!    proportion. Then the process *yields*: it finishes its batches and applies.
//! 5. **Ticket.** A new ticket follows the virtual time by a stride, and keeps a distance from the
//!    tickets of equal processes. The process writes the ticket after the answer to the apply at
//!    the end of the turn. Otherwise the next process locks before the apply arrives. A slow
//!    process does not wait: the next process rolls the commit forward in less time.
//! 6. **Stride.** One full turn, divided by the number of processes with at least twice as many
//!    clients, without processes that are twice as fast. The stride of a slow process covers the
//!    time that its turn costs the fast processes.
//! 7. **Patience.** A wish that has its turn and keeps its ticket for five turns or 8 round trips,
//!    whichever is longer, is skipped until it has another ticket. The time ends at the last poll,
//!    so a pause of the observer does not count.
//! 8. **Renewal.** A process that has its turn and gets no lock for half of the others' patience
//!    takes a new ticket, even while it requests locks. Without this rule a skipped process
//!    starves, because the other processes never yield to it.
//! 9. **Unread board.** A board that was not read for 200 ms or 8 round trips, whichever is longer,
//!    counts as empty.
//! 10. **Refresh.** At the start of its turn a process reads documents that other wishes named,
//!     first for waiting transactions, then for the cache. Locks wait for this read, for at most
//!     12 round trips.
//! 11. **Dormancy.** A process that conflicted with no other process for 10 s does not poll the
//!     board. A process that hands its documents from batch to batch keeps other processes out, and
//!     conflicts with none, so it polls every 250 ms.
//!
//! No rule compares the clocks of two processes. Tickets are virtual times.

mod document;
mod numbers;
mod order;
mod policy;
mod set;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns_tests;
#[cfg(feature = "testing")]
mod visit;

pub use document::{Entry, LAST_TICKET, MOST_BYTES, MOST_SLOTS, Node, Slot, Ticket};
pub use numbers::Numbers;
pub use order::heads;
pub use policy::{BoardWrite, Look, Policy, Work, Written};
pub use set::{BITMAP_BITS, DocumentSet, KeyHash, MOST_HASHES};
#[cfg(feature = "testing")]
pub use visit::Part;
