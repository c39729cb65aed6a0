//! The shapes of errors.

/// The shape of the errors of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A path of the servers, with errors in plain JSON. The clients of the servers expect this
    /// form.
    Server,
    /// A path of the gateway: errors are `application/problem+json`.
    Problem,
    /// A path of the console: errors are pages.
    Page,
}

impl Shape {
    /// The shape of a path.
    pub(crate) fn of_path(path: &str) -> Self {
        let first = path.strip_prefix('/').unwrap_or(path).split('/').next().unwrap_or_default();
        match first {
            "_console" => Self::Page,
            "_txn" | "_locks" | "_outbox" | "_requests" => Self::Problem,
            _ => Self::Server,
        }
    }
}
