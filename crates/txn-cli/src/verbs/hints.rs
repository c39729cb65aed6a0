//! Words and remedies that several verbs share.

/// A duration in milliseconds, for operators.
pub(super) fn time(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

/// A note about a list that is shorter than the truth.
pub(super) fn cut(truncated: bool, limit: usize) -> String {
    match truncated {
        true => format!("\nMore than {limit}: raise --limit to see the rest."),
        false => String::new(),
    }
}
