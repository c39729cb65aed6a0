//! Recovery of abandoned locks and records, and its costs, in virtual time.

mod barriers;
mod costs;
mod made_again;
mod moved;
mod orphans;
mod overtaken;
mod participants;
mod records;
