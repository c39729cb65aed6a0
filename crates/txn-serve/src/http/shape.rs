//! The shapes of errors.

/// The shape of the errors of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A path of the servers: errors are plain JSON, as their clients expect.
    Server,
    /// A path of the gateway: errors are `application/problem+json`.
    Problem,
}
