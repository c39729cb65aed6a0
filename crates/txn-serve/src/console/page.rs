//! The frame of each page.

use maud::{DOCTYPE, Markup, html};

use crate::http::problem::Problem;

/// The address of the style. The version makes browsers read a new one.
const STYLE: &str = concat!("/_console/style.css?v=", env!("CARGO_PKG_VERSION"));

/// The seconds between two reads of a page that refreshes itself.
const REFRESH: u64 = 5;

/// The pages of the navigation.
const PAGES: [(&str, &str); 8] = [
    ("/_console", "Overview"),
    ("/_console/transactions", "Transactions"),
    ("/_console/stuck", "Stuck"),
    ("/_console/waits", "Waits"),
    ("/_console/documents", "Documents"),
    ("/_console/processes", "Processes"),
    ("/_console/partitions", "Partitions"),
    ("/_console/recover", "Recover"),
];

/// A page around its content.
pub(super) struct Page<'a> {
    pub(super) domain: &'a str,
    pub(super) title: &'a str,
    /// The path of the page.
    pub(super) path: &'a str,
    /// The query of the page, without `refresh`.
    pub(super) query: &'a str,
    /// The seconds until the browser reads the page again.
    pub(super) refresh: Option<u64>,
    /// Whether the page may refresh itself.
    pub(super) refreshes: bool,
    /// The name of the caller's token.
    pub(super) caller: Option<&'a str>,
    pub(super) may_act: bool,
}

impl Page<'_> {
    /// Writes the page.
    pub(super) fn render(&self, content: &Markup) -> String {
        let title = format!("{} · {} · txn", self.title, self.domain);
        let refresh = self.refresh.filter(|_| self.refreshes);
        let header = html! {
            p.brand { "txn " span.domain { (self.domain) } }
            (self.navigation())
            p.caller { @if let Some(name) = self.caller { "Token " b { (name) } } }
        };
        let main = html! {
            div.top {
                h1 { (self.title) }
                @if self.refreshes { (self.switch(refresh)) }
            }
            (content)
        };
        document(&title, refresh, &header, &main)
    }

    fn navigation(&self) -> Markup {
        let query = self.refresh.map(|seconds| format!("?refresh={seconds}")).unwrap_or_default();
        let pages = PAGES.iter().filter(|(path, _)| self.may_act || *path != "/_console/recover");
        html! {
            nav aria-label="Pages" {
                ul {
                    @for (path, name) in pages {
                        li {
                            @let current = (*path == self.path).then_some("page");
                            a href={ (path) (query) } aria-current=[current] { (name) }
                        }
                    }
                }
            }
        }
    }

    /// The links that start and stop the refresh.
    fn switch(&self, refresh: Option<u64>) -> Markup {
        let question = if self.query.is_empty() { "" } else { "?" };
        let once = format!("{}{question}{}", self.path, self.query);
        let joint = if self.query.is_empty() { "?" } else { "&" };
        let again = format!("{once}{joint}refresh={REFRESH}");
        html! {
            p.refresh {
                @match refresh {
                    Some(seconds) => {
                        "Refreshes every " (seconds) " s · " a href=(once) { "Stop" }
                    }
                    None => {
                        a href=(once) { "Refresh now" } " · " a href=(again) { "Refresh every " (REFRESH) " s" }
                    }
                }
            }
        }
    }
}

/// The page of a failed request.
pub(crate) fn error_page(problem: &Problem) -> String {
    let status = problem.status;
    let title = format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default());
    let header = html! {
        p.brand { "txn" }
        nav aria-label="Pages" { ul { li { a href="/_console" { "Overview" } } } }
    };
    let main = html! {
        div.top { h1 { (title) } }
        div.message.error role="alert" {
            p { b { (problem.title()) } }
            p { (super::parts::prose(problem.detail())) }
            p { "Code: " code { (problem.code().text()) } }
        }
        p { a href="/_console" { "Back to the overview" } }
    };
    document(&format!("{title} · txn"), None, &header, &main)
}

fn document(title: &str, refresh: Option<u64>, header: &Markup, main: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(seconds) = refresh { meta http-equiv="refresh" content=(seconds); }
                title { (title) }
                link rel="stylesheet" href=(STYLE);
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                header { (header) }
                main #content tabindex="-1" { (main) }
                footer { p { "txn serve " (env!("CARGO_PKG_VERSION")) ". No page shows contents of documents." } }
            }
        }
    };
    page.into_string()
}
