//! A relational outbox table in PostgreSQL as a source of events: rows that an application inserts in its own SQL
//! transaction, beside the change of its entities, relayed by the same processors.
//!
//! ```sql
//! BEGIN;
//! UPDATE book SET title = 'new' WHERE id = 42;
//! INSERT INTO txn_outbox.event (topic, key, payload) VALUES ('books', '42', '{}');
//! COMMIT;
//! ```
//!
//! # What is promised
//! - **Committed or not at all**: the row is one of that transaction.
//! - **Per key, the order of the commits, without a gap.** Numbers from a sequence become visible out of order: the later one
//!   may commit first. Here a trigger counts a row of the key up, and so locks it until the transaction ends. A second
//!   transaction that emits for the key waits for it, and gets the next number only once the first committed; the number of
//!   one that rolled back is used again. So whoever sees a number sees all that are smaller. What it costs: transactions
//!   that emit for one key go one after the other; emit at their end, and for several keys in the order of the keys, or
//!   the database reports a deadlock to one of them.
//! - **Between keys, no order.** Nobody remembers the largest number that he saw, so a transaction that commits late is found
//!   late, and never missed. A transaction that stays open holds up its own keys only.
//! - Under `REPEATABLE READ` and `SERIALIZABLE` a transaction that met another one at a key fails with 40001, as it would at any
//!   row: run it again.
//! - **Exactly once in the domain**: with [`Delivery::transact`](crate::Delivery::transact) the place of the last handled
//!   event is written with the effects; the row is deleted afterwards, and skipped if that was lost. Otherwise at least
//!   once. The database keeps the largest fencing token of each shard, raised when the shard is claimed, and refuses what
//!   comes with a smaller one. Tokens that began anew are named
//!   ([`TokensBeganAnew`](crate::OutboxError::TokensBeganAnew)), and nothing is handled meanwhile.
//!
//! # Who needs which rights
//! An application needs to insert three columns, and can break nothing by that: the trigger runs with the rights of the owner of the
//! schema and with a search path of its own. The failure handbook (`docs/failures.md`) has the statements that grant this, and what
//! processors need.
//!
//! # Connections
//! A source has a pool of connections for single events and one connection for looks ([`Database`]): with TLS or without, and also
//! behind a pooler in transaction mode (PgBouncer), because no statement rests on the session of a connection. A statement that takes
//! longer than [`PostgresConfig::limit`] ends in the database, too.
//!
//! # Bounds
//! An insert is refused beyond [`PostgresConfig::max_backlog`] events of its key, and beyond
//! [`PostgresConfig::max_payload`] bytes. It costs the same however many events wait.
//!
//! Of keys that are not used any more, [`PostgresSource::purge`] deletes what is kept on both sides.
//!
//! # What it needs of the database
//! **What was committed must not be lost.** The row in the place of the last handled event is taken for handled, and deleted, if it
//! is that event. A database that forgets commits counts from an earlier number again: a row in a place that was handled is
//! another event then, which is named ([`CountsAnew`](crate::OutboxError::CountsAnew)), and neither handled nor deleted.
//! What was lost is lost all the same, and once the numbers have passed the last handled one nobody can tell. Let `synchronous_commit` be `on` (or stronger) for whoever inserts events, `fsync` and
//! `full_page_writes` be `on`, and fail over only to a synchronous standby (`synchronous_standby_names`).
//!
//! If commits were lost all the same, or the database was restored to an earlier moment:
//! 1. Stop **all** processors of the source, in all processes, and whoever inserts events, before the database is back. The
//!    epoch is read with the rows: a processor that opened the source under another one handles nothing more, and says so.
//! 2. Run `UPDATE txn_outbox.settings SET epoch = gen_random_uuid()`. From then on every row that is there counts as not
//!    handled, also one that was handled before it was restored: its effects happen once more.
//! 3. Start them again.

mod config;
mod cursor;
mod database;
mod purge;
mod row;
mod source;

pub use config::PostgresConfig;
pub use database::Database;
pub use source::{PostgresSource, SCHEMA};
