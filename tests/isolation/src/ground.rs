//! The ground of one test: a store, two processes on it, and everything that is left behind looked at in the end.
