//! Requests for pages.

use hyper::StatusCode;
use maud::Markup;

use super::page::Page;
use super::{actions, documents, domain, overview, transactions, waits};
use crate::access::rights::Verb;
use crate::asked::Asked;
use crate::backend::Backend;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::http::route::Work;
use crate::samples::Samples;

/// The style of all pages.
const STYLE: &str = include_str!("../../assets/console.css");

/// The permitted seconds between two reads of a page. A caller may ask for this number.
const REFRESHES: std::ops::RangeInclusive<u64> = 2..=3_600;

/// Answers a request for a page, or the form of an operator.
pub(crate) async fn answer(
    backend: &Backend,
    samples: &Samples,
    asked: &mut Asked,
) -> Result<Reply, Problem> {
    let work = asked.route.work;
    if work == Work::ConsoleStyle {
        return Ok(Reply::style(STYLE));
    }
    let acts = work.is_form() || matches!(work, Work::ConfirmAbort | Work::ConfirmRecover);
    asked.caller.need_any(&[Verb::Operate])?;
    let may_act = match asked.caller.need_any(&[Verb::Act]) {
        Err(refused) if acts => return Err(refused),
        checked => checked.is_ok(),
    };
    let refresh = asked.parameters.take_number("refresh")?;
    if refresh.is_some_and(|seconds| !REFRESHES.contains(&seconds)) {
        return Err(Problem::new(Code::Invalid, "refresh is not 2 to 3600 seconds"));
    }
    let query = asked.parameters.query_without("refresh");
    let (status, title, content) = match acts {
        true => action(backend, asked).await?,
        false => {
            let (title, content) = view(backend, samples, asked, may_act).await?;
            (StatusCode::OK, title, content)
        }
    };
    let page = Page {
        domain: backend.domain.name(),
        title,
        path: work.name(),
        query: &query,
        refresh,
        refreshes: !acts,
        caller: asked.caller.name(),
        may_act,
    };
    Ok(Reply::page(status, page.render(&content)))
}

/// The title and the content of a page that changes nothing.
async fn view(
    backend: &Backend,
    samples: &Samples,
    asked: &mut Asked,
    may_act: bool,
) -> Result<(&'static str, Markup), Problem> {
    Ok(match asked.route.work {
        Work::ConsoleTransactions => {
            ("Open transactions", transactions::list(backend, asked).await?)
        }
        Work::ConsoleTransaction => {
            ("Transaction", transactions::one(backend, asked, may_act).await?)
        }
        Work::ConsoleStuck => ("Stuck and dead", transactions::stuck(backend, asked).await?),
        Work::ConsoleWaits => ("Who waits for whom", waits::waits(backend, asked).await?),
        Work::ConsoleDocuments => ("Documents", documents::list(backend, asked).await?),
        Work::ConsoleDocument => ("Document", documents::one(backend, asked).await?),
        Work::ConsoleProcesses => ("Processes", domain::processes(backend, asked).await?),
        Work::ConsolePartitions => ("Partitions", domain::partitions(backend, asked).await?),
        _ => ("Overview", overview::overview(backend, samples, asked).await?),
    })
}

/// Returns the status, title and content of an action.
///
/// Before the action, the content is that of the page that asks.
async fn action(
    backend: &Backend,
    asked: &mut Asked,
) -> Result<(StatusCode, &'static str, Markup), Problem> {
    const ABORT: &str = "Abort a transaction";
    const RECOVER: &str = "Recover";
    Ok(match asked.route.work {
        Work::ConfirmAbort => {
            (StatusCode::OK, ABORT, actions::confirm_abort(backend, asked).await?)
        }
        Work::Abort => {
            let done = actions::abort(backend, asked).await?;
            (done.status, ABORT, done.content)
        }
        Work::Recover => {
            let done = actions::recover(backend, asked).await?;
            (done.status, RECOVER, done.content)
        }
        _ => (StatusCode::OK, RECOVER, actions::confirm_recover(backend, asked).await?),
    })
}
