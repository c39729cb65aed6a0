//! Account transfers over any number of accounts: library and command.
