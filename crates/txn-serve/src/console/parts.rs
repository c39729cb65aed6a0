//! Parts that several pages share.

use maud::{Markup, html};
use txn_core::AttemptId;
use txn_core::admin::{DocumentName, Fault, LockedDocuments};
use url::form_urlencoded;

use crate::operator::{duration, time_of, visible};

/// A text of a caller, with deceptive characters escaped.
pub(super) fn text(text: &str) -> Markup {
    html! { (visible(text)) }
}

/// A sentence of the gateway. A part between backticks is code.
pub(super) fn prose(text: &str) -> Markup {
    let shown = visible(text);
    html! {
        @for (at, part) in shown.split('`').enumerate() {
            @if at % 2 == 0 { (part) } @else { code { (part) } }
        }
    }
}

/// A duration, for a cell of numbers.
pub(super) fn age(ms: u64) -> Markup {
    html! { span.number { (duration(ms)) } }
}

/// A point in time.
pub(super) fn time(ms: u64) -> Markup {
    let time = time_of(ms);
    html! { time datetime=(time) { (time) } }
}

/// A count. A list that was cut has at least this number.
pub(super) fn count(number: usize, truncated: bool) -> Markup {
    html! { (number) @if truncated { "+" } }
}

/// The link to the story of a transaction.
pub(super) fn transaction(tid: AttemptId) -> Markup {
    let full = tid.to_string();
    html! { a.id href=(transaction_path(&full)) title=(full) { (short(&full)) } }
}

/// The address of the page about a transaction.
pub(super) fn transaction_path(tid: &str) -> String {
    format!("/_console/transaction?{}", query(&[("tid", tid)]))
}

/// Returns the two ends of a tid.
///
/// The time is at the begin of the tid, and the process at the end.
pub(super) fn short(tid: &str) -> String {
    match (tid.get(..8), tid.len().checked_sub(4).and_then(|at| tid.get(at..))) {
        (Some(begin), Some(end)) if tid.len() > 12 => format!("{begin}…{end}"),
        _ => tid.to_owned(),
    }
}

/// The link to the story of a document.
pub(super) fn document(name: &DocumentName) -> Markup {
    document_of(&name.collection, &name.id, name.routing.as_deref())
}

/// The link to a document's story, by its name parts.
pub(super) fn document_of(collection: &str, id: &str, routing: Option<&str>) -> Markup {
    let mut pairs = vec![("collection", collection), ("id", id)];
    pairs.extend(routing.map(|routing| ("routing", routing)));
    html! {
        a.document href={ "/_console/document?" (query(&pairs)) } {
            (text(collection)) "/" (text(id))
            @if let Some(routing) = routing { " (routing " (text(routing)) ")" }
        }
    }
}

/// Pairs of a query.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// A word with a border. The word itself says what a colour only repeats.
pub(super) fn badge(kind: &str, word: &str) -> Markup {
    html! { span class={ "badge " (kind) } { (word.replace('_', " ")) } }
}

/// The process of an attempt with its application.
///
/// Without a record only the number of the process is known, which its commits have, too.
pub(super) fn process(tid: AttemptId, process: Option<&str>, application: Option<&str>) -> Markup {
    html! {
        @match (process, application) {
            (Some(process), Some(application)) => { (text(application)) " in " (text(process)) }
            (Some(process), None) => (text(process)),
            (None, _) => { "process " (tid.process().to_string()) }
        }
    }
}

/// The faults of locks and of other parts, each once.
pub(super) fn faults_with(others: &[Fault], locks: &LockedDocuments) -> Markup {
    let unreadable = locks.locks.iter().filter_map(|lock| lock.unreadable.as_ref());
    let mut all: Vec<Fault> =
        others.iter().chain(&locks.faults).chain(unreadable).cloned().collect();
    all.sort();
    all.dedup();
    faults(&all)
}

/// The parts that could not be read. A page without them would look complete.
pub(super) fn faults(faults: &[Fault]) -> Markup {
    html! {
        @if !faults.is_empty() {
            section.message.error aria-label="Faults" {
                h2 { "Faults: this page may not be complete" }
                ul {
                    @for Fault { subject, message, damaged, .. } in faults {
                        li {
                            b { (text(subject)) } " "
                            @if *damaged { (badge("bad", "damaged")) }
                            @else { (badge("warn", "could not be read")) }
                            " " (prose(message))
                        }
                    }
                }
            }
        }
    }
}

/// A table that scrolls sideways on small screens.
///
/// The table is in a part of the page of its own.
///
/// The header of a column with numbers begins with `>`.
pub(super) fn table(name: &str, header: &[&str], rows: &[Markup]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(name) {
            table {
                caption.hidden { (name) }
                thead {
                    tr {
                        @for cell in header {
                            @match cell.strip_prefix('>') {
                                Some(cell) => th.right scope="col" { (cell) },
                                None => th scope="col" { (cell) },
                            }
                        }
                    }
                }
                tbody { @for row in rows { tr { (row) } } }
            }
        }
    }
}

/// A note under a list that is shorter than the truth.
pub(super) fn cut(truncated: bool, limit: usize) -> Markup {
    html! { @if truncated { p.note { "There are more than " (limit) " rows." } } }
}

/// A note in place of the past waits. Other processes may have waited without a record.
pub(super) fn unrecorded(sentence: &str) -> Markup {
    html! {
        p.note {
            (sentence) " Other processes record theirs with " code { "Config::with_write_contention" } "."
        }
    }
}

/// A pair of a list of facts.
pub(super) fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_callers_are_escaped() {
        let hostile = "<script>\u{202e}`x`\"'&";
        let shown = text(hostile).into_string();
        assert!(shown.starts_with("&lt;script&gt;\\u{202e}`x`&quot;"), "{shown}");
        assert_eq!(prose("a `b<` c").into_string(), "a <code>b&lt;</code> c");
        assert_eq!(query(&[("id", "a&b=<\"..")]), "id=a%26b%3D%3C%22..");
    }

    #[test]
    fn short_tid_has_both_ends() {
        assert_eq!(short("3db4dc0b-ea02-11f1-8001-6dd9f108c5aa"), "3db4dc0b…c5aa");
        assert_eq!(short("ab"), "ab");
        assert_eq!(
            short("ääääääääääääää"),
            "ääääääääääääää".get(..8).map_or(String::new(), |b| format!("{b}…ää"))
        );
    }
}
