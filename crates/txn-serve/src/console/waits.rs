//! The page about waits for locks.

use std::collections::BTreeMap;

use maud::{Markup, html};
use txn_core::{AttemptId, LockWait, PresentWait};

use super::graph::{Edge, Layout};
use super::parts::{age, badge, cut, document_of, table, text, time, transaction};
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::Problem;
use crate::operator::answers::take_limit;

/// The time for which an ended wait stays in the picture, in milliseconds.
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
    let now: Vec<Markup> = present.iter().map(present_row).collect();
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
                p.note {
                    "None is recorded. Other processes record theirs with "
                    code { "Config::write_contention" } "."
                }
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

/// The lines of the picture.
fn edges(present: &[PresentWait], past: &[LockWait], now_ms: u64) -> Vec<Edge> {
    let name = |collection: &str, id: &str| format!("{collection}/{id}");
    let present = present.iter().map(|wait| Edge {
        waiter: wait.tid,
        holder: wait.holder,
        document: name(&wait.collection, &wait.id),
        waited_ms: wait.waited_ms,
        is_present: true,
    });
    let is_late = |wait: &&LockWait| {
        wait.began_ms.saturating_add(wait.waited_ms).saturating_add(LATELY_MS) >= now_ms
    };
    let past = past.iter().filter(is_late).map(|wait| Edge {
        waiter: wait.tid,
        holder: wait.holder,
        document: name(&wait.collection, &wait.id),
        waited_ms: wait.waited_ms,
        is_present: false,
    });
    present.chain(past).collect()
}

fn labels(present: &[PresentWait], past: &[LockWait]) -> BTreeMap<AttemptId, String> {
    let present = present
        .iter()
        .flat_map(|wait| [(wait.tid, &wait.label), (wait.holder, &wait.holder_label)]);
    let past =
        past.iter().flat_map(|wait| [(wait.tid, &wait.label), (wait.holder, &wait.holder_label)]);
    let named = present.chain(past).filter_map(|(tid, label)| Some((tid, label.as_deref()?)));
    named.map(|(tid, label)| (tid, label.to_owned())).collect()
}

fn present_row(wait: &PresentWait) -> Markup {
    html! {
        td.right { (age(wait.waited_ms)) }
        td { (transaction(wait.tid)) }
        td { (text(wait.label.as_deref().unwrap_or_default())) }
        td { (document_of(&wait.collection, &wait.id, wait.routing.as_deref())) }
        td { (transaction(wait.holder)) }
        td { (text(wait.holder_label.as_deref().unwrap_or_default())) }
    }
}

fn past_row(wait: &LockWait) -> Markup {
    html! {
        td { (time(wait.began_ms)) }
        td.right { (age(wait.waited_ms)) }
        td { (transaction(wait.tid)) }
        td { (text(wait.label.as_deref().unwrap_or_default())) }
        td { (document_of(&wait.collection, &wait.id, wait.routing.as_deref())) }
        td { (transaction(wait.holder)) }
        td { (text(wait.holder_label.as_deref().unwrap_or_default())) }
        td { (badge("plain", wait.end.as_str())) }
    }
}
