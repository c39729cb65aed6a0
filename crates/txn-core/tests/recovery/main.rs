//! Recovery, in virtual time: what becomes of locks and records that somebody left, and what that costs.

mod barriers;
mod costs;
mod dropped;
mod made_again;
mod moved;
mod old_reads;
mod overtaken;
mod participants;
mod records;
mod shop;
mod strays;
