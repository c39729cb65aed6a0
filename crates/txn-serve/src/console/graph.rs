//! The picture of attempts that wait for others, as SVG.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use txn_core::AttemptId;

use super::parts::{short, transaction_path};
use crate::operator::{duration, visible};

/// The maximum number of attempts in a picture.
const MOST_NODES: usize = 30;

/// The maximum number of waits in a picture.
const MOST_EDGES: usize = 60;

/// The maximum number of characters in a line of a box.
const MOST_LETTERS: usize = 26;

const BOX_WIDTH: usize = 212;
const BOX_HEIGHT: usize = 56;
const GAP_X: usize = 72;
const GAP_Y: usize = 20;
const MARGIN: usize = 12;

/// A wait of one attempt for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) waiter: AttemptId,
    pub(super) holder: AttemptId,
    pub(super) document: String,
    pub(super) waited_ms: u64,
    /// Whether the wait has not ended.
    pub(super) is_present: bool,
}

/// The waits of a picture, and its attempts by column.
///
/// The first column has attempts that wait for no other one. Each attempt stands in a column behind
/// its older holders. Waits of an older attempt for a younger one set no column, so the columns of
/// a circle are finite.
#[derive(Debug)]
pub(super) struct Layout {
    edges: Vec<Edge>,
    columns: Vec<Vec<AttemptId>>,
    /// The number of waits without a place in the picture.
    left_out: usize,
}

impl Layout {
    /// Selects the waits, and places their attempts.
    ///
    /// Present waits and long waits come first.
    pub(super) fn new(mut edges: Vec<Edge>) -> Self {
        edges.sort_by(|a, b| {
            (b.is_present, b.waited_ms, a.waiter, a.holder, &a.document).cmp(&(
                a.is_present,
                a.waited_ms,
                b.waiter,
                b.holder,
                &b.document,
            ))
        });
        let mut nodes: BTreeSet<AttemptId> = BTreeSet::new();
        let all = edges.len();
        let mut shown: Vec<Edge> = Vec::new();
        for edge in edges {
            let new = [edge.waiter, edge.holder].iter().filter(|tid| !nodes.contains(tid)).count();
            if shown.len() < MOST_EDGES && nodes.len() + new <= MOST_NODES {
                nodes.extend([edge.waiter, edge.holder]);
                shown.push(edge);
            }
        }
        let left_out = all - shown.len();
        Self { columns: columns(&nodes, &shown), edges: shown, left_out }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// The corner of each box.
    fn places(&self) -> BTreeMap<AttemptId, (usize, usize)> {
        let highest = self.columns.iter().map(Vec::len).max().unwrap_or(0);
        let mut places = BTreeMap::new();
        for (column, tids) in self.columns.iter().enumerate() {
            // A short column stands in the middle.
            let above = (highest - tids.len()) * (BOX_HEIGHT + GAP_Y) / 2;
            for (row, tid) in tids.iter().enumerate() {
                let x = MARGIN + column * (BOX_WIDTH + GAP_X);
                places.insert(*tid, (x, MARGIN + above + row * (BOX_HEIGHT + GAP_Y)));
            }
        }
        places
    }

    fn size(&self) -> (usize, usize) {
        let highest = self.columns.iter().map(Vec::len).max().unwrap_or(0);
        let along = |count: usize, length: usize, gap: usize| {
            2 * MARGIN + count * length + count.saturating_sub(1) * gap
        };
        (along(self.columns.len(), BOX_WIDTH, GAP_X), along(highest, BOX_HEIGHT, GAP_Y))
    }

    /// Draws the picture. `labels` has the labels of attempts.
    pub(super) fn draw(&self, labels: &BTreeMap<AttemptId, String>) -> Markup {
        let (places, (width, height)) = (self.places(), self.size());
        let present = self.edges.iter().filter(|edge| edge.is_present).count();
        let ended = self.edges.len() - present;
        html! {
            div.scroll tabindex="0" role="region" aria-label="Picture of the waits" {
                svg.graph viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height)
                    role="group" aria-labelledby="graph-title graph-description" {
                    title #graph-title { "Who waits for whom" }
                    desc #graph-description {
                        "Transactions: " (places.len()) ". Present waits: " (present)
                        ". Ended waits: " (ended) ". Each line leads from a transaction to the one that it waits for."
                    }
                    defs {
                        marker #arrow viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"
                            markerHeight="8" orient="auto-start-reverse" {
                            path d="M0 0L8 4L0 8z" {}
                        }
                    }
                    @for edge in &self.edges { (drawn_edge(edge, &places)) }
                    @for (tid, place) in &places { (self.drawn_box(*tid, *place, labels)) }
                }
            }
            @if self.left_out > 0 {
                p.note { "The picture leaves out " (self.left_out) " waits." }
            }
        }
    }

    fn drawn_box(
        &self,
        tid: AttemptId,
        (x, y): (usize, usize),
        labels: &BTreeMap<AttemptId, String>,
    ) -> Markup {
        let full = tid.to_string();
        let own: Vec<&Edge> = self.edges.iter().filter(|edge| edge.waiter == tid).collect();
        let waiting = own.iter().any(|edge| edge.is_present);
        let held = self.edges.iter().any(|edge| edge.holder == tid && edge.is_present);
        let label = labels.get(&tid).map(|label| visible(label).into_owned());
        let name = label.clone().unwrap_or_else(|| short(&full));
        let what = match own.first() {
            Some(edge) => {
                let verb = if edge.is_present { "waits" } else { "waited" };
                let alike = own.iter().filter(|other| other.is_present == edge.is_present).count();
                let documents = match alike {
                    1 => visible(&edge.document).into_owned(),
                    documents => format!("{documents} documents"),
                };
                format!("{verb} {}: {documents}", duration(edge.waited_ms))
            }
            None => "waits for none".to_owned(),
        };
        let kind = match (waiting, held) {
            (true, _) => "waiter",
            (false, true) => "holder",
            (false, false) => "past",
        };
        html! {
            a class={ "node " (kind) } href=(transaction_path(&full)) {
                title { (label.unwrap_or_default()) " " (full) ", " (what) }
                rect x=(x) y=(y) width=(BOX_WIDTH) height=(BOX_HEIGHT) rx="6" {}
                text.name x=(x + 12) y=(y + 23) { (cut(&name)) }
                text.what x=(x + 12) y=(y + 43) { (cut(&what)) }
            }
        }
    }
}

/// A line from the waiting attempt to its holder.
fn drawn_edge(edge: &Edge, places: &BTreeMap<AttemptId, (usize, usize)>) -> Markup {
    let (Some(from), Some(to)) = (places.get(&edge.waiter), places.get(&edge.holder)) else {
        return html! {};
    };
    let middle = BOX_HEIGHT / 2;
    // The holder usually stands at the left of the waiting attempt.
    let (start, end) = match from.0 > to.0 {
        true => ((from.0, from.1 + middle), (to.0 + BOX_WIDTH, to.1 + middle)),
        false => ((from.0 + BOX_WIDTH, from.1 + middle), (to.0, to.1 + middle)),
    };
    let bend = start.0.midpoint(end.0);
    let path =
        format!("M{} {}C{bend} {} {bend} {} {} {}", start.0, start.1, start.1, end.1, end.0, end.1);
    let kind = if edge.is_present { "edge" } else { "edge ended" };
    html! {
        path class=(kind) d=(path) marker-end="url(#arrow)" {
            title { (visible(&edge.document)) ", " (duration(edge.waited_ms)) }
        }
    }
}

/// The attempts by column, and in each column beside their holders.
fn columns(nodes: &BTreeSet<AttemptId>, edges: &[Edge]) -> Vec<Vec<AttemptId>> {
    let mut depth: BTreeMap<AttemptId, usize> = BTreeMap::new();
    // An older attempt has a smaller tid, so its column is known first.
    for tid in nodes {
        let holders = edges.iter().filter(|edge| edge.waiter == *tid && edge.holder < *tid);
        let deepest = holders.filter_map(|edge| depth.get(&edge.holder)).max();
        depth.insert(*tid, deepest.map_or(0, |deepest| deepest + 1));
    }
    let mut columns: Vec<Vec<AttemptId>> = Vec::new();
    for (tid, depth) in &depth {
        if columns.len() <= *depth {
            columns.resize(depth + 1, Vec::new());
        }
        columns[*depth].push(*tid);
    }
    for at in 1..columns.len() {
        let (before, rest) = columns.split_at_mut(at);
        let row = |tid: AttemptId| {
            let rows = edges
                .iter()
                .filter(|edge| edge.waiter == tid)
                .filter_map(|edge| before.last()?.iter().position(|holder| *holder == edge.holder));
            rows.min().unwrap_or(usize::MAX)
        };
        if let Some(column) = rest.first_mut() {
            column.sort_by_key(|tid| (row(*tid), *tid));
        }
    }
    columns
}

/// The beginning of a text, which fits into a box.
fn cut(text: &str) -> String {
    match text.chars().count() > MOST_LETTERS {
        true => text.chars().take(MOST_LETTERS - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tid of the attempt with this age.
    fn tid(age: u32) -> AttemptId {
        format!("{age:08x}-ea02-11f1-8001-6dd9f108c5aa").parse().expect("a tid")
    }

    fn edge(waiter: u32, holder: u32, is_present: bool) -> Edge {
        let document = format!("stock/<{holder}>");
        Edge { waiter: tid(waiter), holder: tid(holder), document, waited_ms: 1_500, is_present }
    }

    #[test]
    fn waiting_attempt_stands_behind_its_holders() {
        let layout = Layout::new(vec![edge(3, 2, true), edge(2, 1, true), edge(4, 1, false)]);
        assert_eq!(layout.columns, [vec![tid(1)], vec![tid(2), tid(4)], vec![tid(3)]]);
        let picture = layout.draw(&BTreeMap::from([(tid(3), "pay<out>".to_owned())])).into_string();
        assert!(
            picture.contains("Transactions: 4. Present waits: 2. Ended waits: 1."),
            "{picture}"
        );
        assert!(picture.contains("pay&lt;out&gt;") && picture.contains("stock/&lt;1&gt;"));
        assert!(!picture.contains("<out>") && !picture.contains("leaves out"), "{picture}");
    }

    #[test]
    fn attempt_with_several_waits_shows_their_number() {
        let several =
            vec![edge(3, 1, true), edge(3, 2, true), edge(4, 1, false), edge(3, 1, false)];
        let picture = Layout::new(several).draw(&BTreeMap::new()).into_string();
        assert!(picture.contains("waits 1.5 s: 2 documents<"), "{picture}");
        assert!(picture.contains("waited 1.5 s: stock/&lt;1&gt;<"), "{picture}");
    }

    #[test]
    fn circle_of_waits_has_a_picture() {
        let layout = Layout::new(vec![edge(1, 2, true), edge(2, 1, true), edge(3, 3, true)]);
        assert_eq!(layout.columns, [vec![tid(1), tid(3)], vec![tid(2)]]);
        assert!(layout.draw(&BTreeMap::new()).into_string().contains("marker-end"));
    }

    #[test]
    fn picture_is_bounded_and_says_so() {
        let many: Vec<Edge> = (1..200).map(|n| edge(n + 1, n, n % 2 == 0)).collect();
        let layout = Layout::new(many);
        assert!(layout.places().len() <= MOST_NODES && layout.edges.len() <= MOST_EDGES);
        let present = layout.edges.iter().filter(|edge| edge.is_present).count();
        assert_eq!(present, MOST_NODES / 2, "present waits come first");
        let left_out = format!("leaves out {} waits", 199 - layout.edges.len());
        assert!(layout.draw(&BTreeMap::new()).into_string().contains(&left_out));
    }

    #[test]
    fn boxes_do_not_overlap() {
        let star: Vec<Edge> = (2..12).map(|n| edge(n, 1, true)).collect();
        let layout = Layout::new(star);
        let (places, (width, height)) = (layout.places(), layout.size());
        let corners: BTreeSet<(usize, usize)> = places.values().copied().collect();
        assert_eq!((corners.len(), places.len()), (11, 11));
        for (x, y) in corners {
            assert!(x + BOX_WIDTH + MARGIN <= width && y + BOX_HEIGHT + MARGIN <= height);
        }
    }
}
