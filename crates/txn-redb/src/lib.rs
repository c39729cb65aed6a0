//! One embedded file as the store of txn-core.
