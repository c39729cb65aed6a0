//! Words and remedies that several verbs share.

use txn_core::admin::Verdict;

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

/// The next step after a verdict.
pub(super) fn next_step(verdict: Verdict, tid: impl std::fmt::Display) -> String {
    match verdict {
        Verdict::Running => {
            format!("nothing: the owner may still commit; to end it by force: `txn abort {tid}`")
        }
        Verdict::Overdue => {
            format!("`txn recover`, or `txn abort {tid}` to free its documents at once")
        }
        Verdict::Unapplied | Verdict::Unmarked => {
            "nothing, or `txn recover`: any process rolls it forward after one lease".to_owned()
        }
        Verdict::Damaged => {
            "repair the named documents as in docs/failures.md, then `txn recover`".to_owned()
        }
        Verdict::Finished | Verdict::Aborted | Verdict::Forgotten => "nothing".to_owned(),
        Verdict::Unknown => {
            "check the tid; a commit of one document without a record cannot be found by its tid"
                .to_owned()
        }
        _ => "see docs/failures.md".to_owned(),
    }
}

/// A note about a list that is shorter than the truth.
pub(super) fn cut(truncated: bool, limit: usize) -> String {
    match truncated {
        true => format!("\nMore than {limit}: raise --limit to see the rest."),
        false => String::new(),
    }
}
