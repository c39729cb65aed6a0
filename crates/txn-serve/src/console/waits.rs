//! The page about waits for locks.

use std::collections::BTreeMap;

use maud::{Markup, html};
use txn_core::{AttemptId, LockWait, PresentWait};

use super::graph::{Edge, Layout};
use super::parts::{age, badge, cut, document_of, table, text, time, transaction, unrecorded};
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::Problem;
use crate::operator::answers::take_limit;

/// How long an ended wait stays in the picture, in milliseconds.
const LATELY_MS: u64 = 60_000;

/// Shows the present and the past waits.
pub(super) async fn waits(backend: &Backend, asked: &mut Asked) -> Result<Markup, Problem> {
    let limit = take_limit(asked)?;
    asked.finish_parameters()?;
    let admin = backend.domain.admin();
    let now_ms = admin.overview().await?.now_ms;
    let past = admin.contention_of_all(limit).await?;
    let mut present = admin.present_waits(limit.saturating_add(1));
    let more = present.len() > limit;
    present.truncate(limit);
    let layout = Layout::new(edges(&present, &past.waits, now_ms));
    let now: Vec<Markup> = present.iter().map(|wait| Wait::present(wait).cells()).collect();
    let ended: Vec<Markup> = past.waits.iter().map(past_row).collect();
    Ok(html! {
        section aria-label="Picture" {
            @if layout.is_empty() {
                p.note { "No transaction of this gateway waits, and no wait ended in the last minute." }
            } @else {
                (layout.draw(&labels(&present, &past.waits)))
                p.note {
                    "Solid lines are present waits of this gateway. Dashed lines are waits of the last "
                    (LATELY_MS / 1_000) " s. Each line leads to the holder of the lock."
                }
            }
        }
        section {
            h2 { "Present waits of this gateway, longest first" }
            @if now.is_empty() { p.note { "None." } }
            @else {
                (table(
                    "Present waits",
                    &[">Has waited", "Transaction", "Label", "Document", "Holder", "Its label"],
                    &now,
                ))
            }
            (cut(more, limit))
        }
        section {
            h2 { "Past waits, newest first" }
            @if ended.is_empty() {
                (unrecorded("None is recorded."))
            } @else {
                (table(
                    "Past waits",
                    &["Began", ">Waited", "Transaction", "Label", "Document", "Holder", "Its label", "End"],
                    &ended,
                ))
            }
            @if past.truncated { p.note { "There were more waits." } }
        }
    })
}

/// The common part of present and ended waits.
struct Wait<'a> {
    waiter: AttemptId,
    label: Option<&'a str>,
    holder: AttemptId,
    holder_label: Option<&'a str>,
    collection: &'a str,
    id: &'a str,
    routing: Option<&'a str>,
    waited_ms: u64,
    is_present: bool,
}

/// Selects the common part: both kinds have fields of the same names.
macro_rules! common {
    ($wait:expr, $is_present:literal) => {
        Wait {
            waiter: $wait.tid,
            label: $wait.label.as_deref(),
            holder: $wait.holder,
            holder_label: $wait.holder_label.as_deref(),
            collection: &$wait.collection,
            id: &$wait.id,
            routing: $wait.routing.as_deref(),
            waited_ms: $wait.waited_ms,
            is_present: $is_present,
        }
    };
}

impl<'a> Wait<'a> {
    fn present(wait: &'a PresentWait) -> Self {
        common!(wait, true)
    }

    fn ended(wait: &'a LockWait) -> Self {
        common!(wait, false)
    }

    /// The line of the picture.
    fn edge(&self) -> Edge {
        Edge {
            waiter: self.waiter,
            holder: self.holder,
            document: format!("{}/{}", self.collection, self.id),
            waited_ms: self.waited_ms,
            is_present: self.is_present,
        }
    }

    /// The cells of both tables.
    fn cells(&self) -> Markup {
        html! {
            td.right { (age(self.waited_ms)) }
            td { (transaction(self.waiter)) }
            td { (text(self.label.unwrap_or_default())) }
            td { (document_of(self.collection, self.id, self.routing)) }
            td { (transaction(self.holder)) }
            td { (text(self.holder_label.unwrap_or_default())) }
        }
    }
}

/// The lines of the picture: present waits, and those that ended lately.
fn edges(present: &[PresentWait], past: &[LockWait], now_ms: u64) -> Vec<Edge> {
    let is_late = |wait: &&LockWait| {
        wait.began_ms.saturating_add(wait.waited_ms).saturating_add(LATELY_MS) >= now_ms
    };
    let late = past.iter().filter(is_late).map(Wait::ended);
    present.iter().map(Wait::present).chain(late).map(|wait| wait.edge()).collect()
}

fn labels(present: &[PresentWait], past: &[LockWait]) -> BTreeMap<AttemptId, String> {
    let waits = present.iter().map(Wait::present).chain(past.iter().map(Wait::ended));
    let named =
        waits.flat_map(|wait| [(wait.waiter, wait.label), (wait.holder, wait.holder_label)]);
    named.filter_map(|(tid, label)| Some((tid, label?.to_owned()))).collect()
}

fn past_row(wait: &LockWait) -> Markup {
    html! {
        td { (time(wait.began_ms)) }
        (Wait::ended(wait).cells())
        td { (badge("plain", wait.end.as_str())) }
    }
}
