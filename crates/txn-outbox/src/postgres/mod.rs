//! An outbox table in PostgreSQL as a source of events.
//!
//! An application inserts a row in its own SQL transaction, together with the change of its
//! entities. The usual processors relay the rows.
//!
//! ```sql
//! BEGIN;
//! UPDATE book SET title = 'new' WHERE id = 42;
//! INSERT INTO txn_outbox.event (topic, key, payload) VALUES ('books', '42', '{}');
//! COMMIT;
//! ```
//!
//! # Guarantees
//! - **Atomicity**: the row is part of the application's transaction.
//! - **Commit order per key, without gaps.** Numbers of a sequence could become visible out of
//!   order, because the later number may commit first. Instead, a trigger increments a row of the
//!   key, and so locks it until the transaction ends. A second transaction for the key waits, and
//!   receives the next number after the commit of the first. After a rollback the number is used
//!   again. A reader of a number therefore sees all smaller numbers. The price: transactions that
//!   emit for one key run one after the other. Emit at the end of a transaction, and for several
//!   keys in the order of the keys; otherwise the database reports a deadlock.
//! - **No order between keys.** Processors remember no largest number, so they find events of late
//!   commits, too. A transaction that stays open delays only its own keys.
//! - **Isolation levels.** Under `REPEATABLE READ` and `SERIALIZABLE` a transaction with a conflict
//!   at a key fails with 40001, as at any row. Run the transaction again.
//! - **Exactly once in the domain.** [`Delivery::transact`](crate::Delivery::transact) writes the
//!   position of the event together with the effects. The processor deletes the row afterwards, and
//!   skips it if the deletion was lost. Without `transact` the delivery is at least once.
//! - **Fencing.** The database keeps the largest fencing token of each shard, raises it at each
//!   claim, and refuses smaller tokens. If the tokens of the domain start again from small numbers,
//!   processing stops with [`TokensRestarted`](crate::OutboxError::TokensRestarted).
//!
//! # Privileges
//! An application needs the privilege to insert three columns, and can break nothing by it. The
//! trigger runs with the privileges of the schema's owner and with its own search path. The failure
//! handbook (`docs/failures.md`) has the `GRANT` statements for applications and processors.
//!
//! # Connections
//! A source has a pool of connections for single events, and one connection for scans
//! ([`Database`]). TLS is optional. A pooler in transaction mode (PgBouncer) works, because no
//! statement depends on the session of a connection. A statement beyond [`PostgresConfig::limit`]
//! ends in the database, too.
//!
//! # Limits
//! The database refuses an insert beyond [`PostgresConfig::max_backlog`] events of its key, or
//! beyond [`PostgresConfig::max_payload`] bytes. The cost of an insert does not depend on the
//! number of waiting events.
//!
//! [`PostgresSource::purge`] deletes the state of unused keys on both sides.
//!
//! # Durability of the database
//! **Committed rows must not be lost.** A row at the position of the last handled event counts as
//! handled, and is deleted, if it is the same event. A database that lost commits uses earlier
//! numbers again, so the position has another event. The source then reports
//! [`PositionsRestarted`](crate::OutboxError::PositionsRestarted), and neither handles nor deletes
//! the row. The lost events stay lost. Once the numbers have passed the last handled one, the loss
//! is no longer detectable.
//!
//! Set `synchronous_commit` to `on` (or stronger) for all writers of events, and `fsync` and
//! `full_page_writes` to `on`. Fail over only to a synchronous standby
//! (`synchronous_standby_names`).
//!
//! After a loss of commits, or after a restore to an earlier moment:
//! 1. Stop **all** processors of the source in all processes, and all writers of events, before the
//!    database is back. The source reads the epoch with the rows: a processor with another epoch
//!    handles nothing, and reports an error.
//! 2. Run `UPDATE txn_outbox.settings SET epoch = gen_random_uuid()`. All existing rows then count
//!    as not handled. Effects of rows that were handled before the restore happen once more.
//! 3. Start the processors and writers again.

mod config;
mod cursor;
mod database;
mod purge;
mod row;
mod source;

pub use config::PostgresConfig;
pub use database::Database;
pub use source::{PostgresSource, SCHEMA};
