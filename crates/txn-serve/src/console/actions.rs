//! Actions of operators.
//!
//! Each action has a page that asks, and needs a reason.

use hyper::StatusCode;
use maud::{Markup, html};
use txn_core::admin::{AbortReport, TransactionState, Verdict};
use txn_core::{AttemptId, JanitorReport};

use super::parts::{fact, prose, text, transaction, transaction_path};
use super::transactions::{story, tid_of};
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::parameters::Parameters;
use crate::http::problem::Problem;
use crate::operator::{has_traces, next_step_of_transaction};

/// The maximum number of characters of a reason.
const MOST_REASON: usize = 200;

/// The maximum number of rows of a page that asks.
const SHOWN: usize = 20;

/// The maximum number of faults that an answer lists.
const FAULTS: usize = 100;

/// The answer to a form.
pub(super) struct Done {
    pub(super) status: StatusCode,
    pub(super) content: Markup,
}

/// Asks before a transaction is aborted.
pub(super) async fn confirm_abort(backend: &Backend, asked: &mut Asked) -> Result<Markup, Problem> {
    let tid = tid_of(&mut asked.parameters)?;
    asked.finish_parameters()?;
    abort_form(backend, tid, None).await
}

async fn abort_form(
    backend: &Backend,
    tid: AttemptId,
    complaint: Option<&str>,
) -> Result<Markup, Problem> {
    let report = backend.domain.admin().transaction(tid, SHOWN).await?;
    let may_abort = matches!(report.verdict, Verdict::Running | Verdict::Overdue);
    let back = transaction_path(&tid.to_string());
    Ok(html! {
        @if may_abort {
            div.message.warn {
                p { "The abort is final. All locks of the attempt become void." }
                p {
                    "An owner that lives runs its closure again under another tid. A group aborts "
                    "with all its members. A transaction that commits first stays committed."
                }
            }
            (form("/_console/abort", Some(tid), "Abort the transaction", &back, complaint))
        } @else {
            div.message {
                p { "The transaction cannot be aborted: it is " (report.verdict.as_str()) "." }
                p { "Next step: " (prose(&next_step_of_transaction(report.verdict, tid))) "." }
            }
        }
        h2 { "The transaction" }
        (story(&report, SHOWN))
    })
}

/// Aborts a transaction, for a reason.
pub(super) async fn abort(backend: &Backend, asked: &mut Asked) -> Result<Done, Problem> {
    let mut form = form_of(asked)?;
    asked.finish_parameters()?;
    let (tid, reason) = (tid_of(&mut form)?, reason(&mut form));
    form.finish()?;
    let reason = match reason {
        Ok(reason) => reason,
        Err(complaint) => {
            let content = abort_form(backend, tid, Some(complaint)).await?;
            return Ok(Done { status: StatusCode::BAD_REQUEST, content });
        }
    };
    // A mistyped tid would leave a record.
    if !has_traces(&backend.domain, tid).await? {
        let content = html! {
            div.message.error role="alert" {
                p { "The transaction has no record and no lock. Nothing was done." }
            }
        };
        return Ok(Done { status: StatusCode::NOT_FOUND, content });
    }
    let why = format!("{reason} ({})", asked.caller.name().unwrap_or("console"));
    let action = asked.named.begin_action("abort", tid.to_string(), &reason);
    let aborted = backend.domain.admin().abort(tid, &why, false).await;
    action.ended(aborted.as_ref().map_or("failed", |report| report.after.as_str()));
    Ok(aborted_page(&aborted?))
}

fn aborted_page(report: &AbortReport) -> Done {
    let (status, kind, sentence) = match (report.aborts, report.after) {
        (true, _) => (
            StatusCode::OK,
            "good",
            "The transaction is aborted for good, and its locks are void.".to_owned(),
        ),
        (false, TransactionState::Aborted) => {
            (StatusCode::OK, "good", "The transaction was aborted before.".to_owned())
        }
        (false, state) => (
            StatusCode::CONFLICT,
            "error",
            format!("The transaction was not aborted: it is {state}."),
        ),
    };
    let content = html! {
        div class={ "message " (kind) } role="status" { p { (sentence) } }
        p { "Transaction " (transaction(report.tid)) }
    };
    Done { status, content }
}

/// Asks before a janitor pass.
pub(super) async fn confirm_recover(
    backend: &Backend,
    asked: &mut Asked,
) -> Result<Markup, Problem> {
    asked.finish_parameters()?;
    recover_form(backend, None).await
}

async fn recover_form(backend: &Backend, complaint: Option<&str>) -> Result<Markup, Problem> {
    let report = backend.domain.admin().inspect().await?;
    Ok(html! {
        div.message {
            p {
                "A janitor pass recovers the transactions of dead owners: it aborts them or rolls "
                "them forward, and removes void locks. Living transactions go on."
            }
            p { "The pass takes one lease if it finds work." }
        }
        (form("/_console/recover", None, "Start the janitor pass", "/_console/stuck", complaint))
        h2 { "The domain now" }
        (pass_facts(&report))
    })
}

/// Carries out a janitor pass, for a reason.
pub(super) async fn recover(backend: &Backend, asked: &mut Asked) -> Result<Done, Problem> {
    let mut form = form_of(asked)?;
    asked.finish_parameters()?;
    let reason = reason(&mut form);
    form.finish()?;
    let reason = match reason {
        Ok(reason) => reason,
        Err(complaint) => {
            let content = recover_form(backend, Some(complaint)).await?;
            return Ok(Done { status: StatusCode::BAD_REQUEST, content });
        }
    };
    let action = asked.named.begin_action("recover", backend.domain.name().to_owned(), &reason);
    let report = backend.domain.admin().janitor_pass().await;
    action.ended(match &report {
        Ok(report) => format!("recovered {}", report.recovered),
        Err(_) => "failed".to_owned(),
    });
    let report = report?;
    let content = html! {
        div.message.good role="status" {
            p { "The janitor pass has ended. It recovered " (report.recovered) " transactions or locks." }
        }
        (pass_facts(&report))
        p { a href="/_console/stuck" { "Transactions and locks without progress" } }
    };
    Ok(Done { status: StatusCode::OK, content })
}

fn pass_facts(report: &JanitorReport) -> Markup {
    let damaged = report.damaged.iter().map(|(key, what)| {
        html! { b { (text(&format!("{}/{}", key.collection, key.id))) } " is damaged: " (prose(what)) }
    });
    let unreachable = report.unreachable.iter().map(|(name, what)| {
        html! { b { (text(name)) } " could not be read: " (prose(what)) }
    });
    let faults: Vec<Markup> = damaged.chain(unreachable).take(FAULTS).collect();
    html! {
        @if !faults.is_empty() {
            section.message.error aria-label="Faults" {
                h2 { "Faults" }
                ul { @for fault in &faults { li { (fault) } } }
            }
        }
        dl.facts {
            (fact("Locked documents", &html! { (report.locked.len()) }))
            (fact("Open transactions", &html! { (report.open.len()) }))
        }
        @if report.truncated { p.note { "The lists were cut." } }
    }
}

/// The form with the reason.
fn form(
    path: &str,
    tid: Option<AttemptId>,
    button: &str,
    back: &str,
    complaint: Option<&str>,
) -> Markup {
    html! {
        form.action method="post" action=(path) {
            @if let Some(tid) = tid { input type="hidden" name="tid" value=(tid); }
            label for="reason" { "Reason, for the audit log" }
            @if let Some(complaint) = complaint {
                p #complaint.complaint role="alert" { (complaint) }
            }
            @let described = complaint.map(|_| "complaint");
            input #reason type="text" name="reason" required maxlength=(MOST_REASON)
                autocomplete="off" aria-invalid=[complaint.map(|_| "true")]
                aria-describedby=[described];
            p.actions {
                button.danger type="submit" { (button) }
                a.button href=(back) { "Cancel" }
            }
        }
    }
}

fn form_of(asked: &Asked) -> Result<Parameters, Problem> {
    Ok(Parameters::parse(Some(asked.text()?)))
}

/// The reason of a form.
fn reason(form: &mut Parameters) -> Result<String, &'static str> {
    let reason = form.take("reason").unwrap_or_default();
    let reason = reason.trim();
    match reason.chars().count() {
        0 => Err("The action needs a reason."),
        1..=MOST_REASON if reason.contains(char::is_control) => {
            Err("A reason has one line, and no control characters.")
        }
        1..=MOST_REASON => Ok(reason.to_owned()),
        _ => Err("A reason has at most 200 characters."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_one_short_line() {
        let of = |body: &str| reason(&mut Parameters::parse(Some(body)));
        assert_eq!(of("reason=+hung+%3Cb%3E+"), Ok("hung <b>".to_owned()));
        let longest = format!("reason={}", "ä".repeat(MOST_REASON));
        assert_eq!(of(&longest).map(|text| text.chars().count()), Ok(MOST_REASON));
        for bad in ["", "reason=", "reason=+%20", "reason=a%0Ab", &format!("{longest}a")] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
