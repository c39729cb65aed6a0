//! A relational outbox table in PostgreSQL as a source of events.
