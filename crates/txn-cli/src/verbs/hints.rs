//! Words and remedies that several verbs share.

pub(super) use txn_serve::operator::duration as time;

/// A note about a list that is shorter than the truth.
pub(super) fn cut(truncated: bool, limit: usize) -> String {
    match truncated {
        true => format!("\nMore than {limit}: raise --limit to see the rest."),
        false => String::new(),
    }
}
