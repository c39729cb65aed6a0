//! Multi-document transactions on any document store with conditional writes.
