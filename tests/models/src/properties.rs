//! The properties of every state, and the states that must occur.

use stateright::Property;

use crate::protocol::{Protocol, is_over};
use crate::scenario::{Kind, Scenario, Use};
use crate::state::{ATTEMPTS, DOCS, Deed, Mark, Rec, TXNS, Told, Who, World, is_committed, who};

/// The properties of a scenario.
pub(crate) fn of(scenario: &Scenario) -> Vec<Property<Protocol>> {
    let mut all = vec![
        Property::<Protocol>::always("nothing impossible happens", |_, w| w.fault.is_none()),
        Property::<Protocol>::always("what was told stays true", |m, w| told_is_true(&m.0, w)),
        Property::<Protocol>::always("committed writes stay, whole", |m, w| writes_stay(&m.0, w)),
        Property::<Protocol>::always("only committed content is read or stands", |m, w| {
            only_committed(&m.0, w)
        }),
        Property::<Protocol>::always("strictly serialisable", |m, w| is_serialisable(&m.0, w)),
        Property::<Protocol>::always("the oldest gets through", |m, w| {
            !m.0.oldest_commits || w.txns[0].told != Told::Failed
        }),
        Property::<Protocol>::sometimes("everything ends", |m, w| is_over(&m.0, w)),
    ];
    if scenario.scripts.iter().filter(|s| s.writes()).count() > 1 {
        all.push(Property::<Protocol>::sometimes("all writers commit", |m, w| {
            let scripts = m.0.scripts.iter().zip(&w.txns);
            scripts.filter(|(s, _)| s.writes()).all(|(_, txn)| txn.told == Told::Committed)
        }));
    }
    all
}

/// The durable record of a transaction's committed attempt, if there is one.
fn commit(w: &World, t: usize) -> Option<(Who, &Rec)> {
    (0..ATTEMPTS).find_map(|a| {
        let rec = &w.recs[t * ATTEMPTS + a].durable;
        is_committed(rec.mark).then(|| (who(t, u8::try_from(a).unwrap_or_default()), rec))
    })
}

/// Whether each answer is true.
///
/// A transaction that was reported as committed has a committed record. A transaction that was
/// reported as failed has none.
fn told_is_true(scenario: &Scenario, w: &World) -> bool {
    (0..scenario.scripts.len()).all(|t| {
        let mut marks = (0..ATTEMPTS).map(|a| w.recs[t * ATTEMPTS + a].durable.mark);
        match w.txns[t].told {
            Told::Nothing => true,
            Told::Failed => !marks.any(is_committed),
            Told::Committed if has_record(scenario, w, t) => marks.any(is_committed),
            Told::Committed => true,
        }
    })
}

/// Whether a transaction commits by a record.
///
/// Such a transaction deletes or writes a document.
fn has_record(scenario: &Scenario, w: &World, t: usize) -> bool {
    let script = &scenario.scripts[t];
    let writes = |d: usize| match script.uses[d] {
        Use::Put | Use::Insert => true,
        Use::Delete => !w.txns[t].seen[d].absent,
        Use::Read | Use::No => false,
    };
    script.kind == Kind::Explicit && script.documents().any(writes)
}

/// The transaction whose content a transaction read or overwrote, plus one.
fn before(w: &World, t: usize, d: usize) -> u8 {
    w.txns[t].seen[d].writer
}

/// Whether a document shows `t` or a later transaction.
///
/// `d` is the document, and `t` is a transaction.
pub(crate) fn comes_after(w: &World, d: usize, t: usize) -> bool {
    let mut at = w.docs[d].durable.writer;
    for _ in 0..=TXNS {
        if at == 0 {
            return false;
        }
        let writer = usize::from(at) - 1;
        if writer == t {
            return true;
        }
        at = before(w, writer, d);
    }
    false
}

/// Whether every write of a committed transaction is safe.
///
/// The write is present, or a later transaction overwrote it. Before the record is finished, the
/// transaction's lock over the content that it read suffices. A commit that is lost with a dropped
/// collection is reported before its record is finished, and never written in the new collection.
fn writes_stay(scenario: &Scenario, w: &World) -> bool {
    (0..scenario.scripts.len()).all(|t| {
        let Some((me, rec)) = commit(w, t) else { return true };
        (0..DOCS).filter(|d| rec.deeds[*d].writes()).all(|d| {
            let doc = &w.docs[d].durable;
            if doc.era != rec.eras[d] {
                let is_known = rec.mark == Mark::Committed || w.reported & (1 << d) != 0;
                return !comes_after(w, d, t) && (is_known || w.dropped[d] & (1 << t) != 0);
            }
            let placed = rec.deeds[d] != Deed::Insert || doc.version == rec.versions[d];
            let unlocked = doc.lock != me || !placed;
            // A plain client removed the lock: the owner writes the document, or the document is
            // reported. The record is never finished without a report.
            let is_told = scenario.meddles() && unlocked && (doc.absent || doc.version == 0);
            let waits = (doc.lock == me && placed || is_told) && doc.writer == before(w, t, d);
            comes_after(w, d, t) || waits && rec.mark == Mark::Committed
        })
    })
}

/// Whether a transaction is committed, by the evidence of its kind.
fn counts(scenario: &Scenario, w: &World, t: usize) -> bool {
    let txn = &w.txns[t];
    match scenario.scripts[t].kind {
        _ if has_record(scenario, w, t) => commit(w, t).is_some() || txn.told == Told::Committed,
        Kind::Single => txn.landed || txn.told == Told::Committed,
        _ => txn.told == Told::Committed,
    }
}

/// Whether all visible content is that of committed transactions.
///
/// Visible is all present content, and all reads of committed transactions.
fn only_committed(scenario: &Scenario, w: &World) -> bool {
    let fine = |writer: u8| writer == 0 || counts(scenario, w, usize::from(writer) - 1);
    let stands = w.docs.iter().all(|slot| fine(slot.durable.writer));
    let read = (0..scenario.scripts.len()).filter(|t| counts(scenario, w, *t)).all(|t| {
        let seen = &w.txns[t].seen;
        seen.iter().filter(|seen| seen.read).all(|seen| fine(seen.writer))
    });
    stands && read
}

/// Whether the order by reads, writes and real time has no cycle.
fn is_serialisable(scenario: &Scenario, w: &World) -> bool {
    let count = scenario.scripts.len();
    let mut nodes = [false; TXNS];
    for (t, node) in nodes.iter_mut().enumerate().take(count) {
        let reads = matches!(scenario.scripts[t].kind, Kind::Reader) && !scenario.snapshots;
        let several = scenario.scripts[t].documents().count() > 1;
        *node = counts(scenario, w, t) && !(reads && several);
    }
    let mut reach = [0_u8; TXNS];
    for t in (0..count).filter(|t| nodes[*t]) {
        for (earlier, node) in nodes.iter().enumerate() {
            if *node && w.txns[t].after & (1 << earlier) != 0 {
                reach[earlier] |= 1 << t;
            }
        }
        // An administrator's drop is not a part of the order.
        for d in scenario.scripts[t].documents().filter(|d| w.docs[*d].durable.era == 0) {
            let writer = usize::from(before(w, t, d));
            if writer > 0 && writer - 1 != t {
                reach[writer - 1] |= 1 << t;
            }
            // A transaction that overwrote this read comes after it.
            for next in (0..count).filter(|next| *next != t && nodes[*next]) {
                if wrote(scenario, w, next, d) && before(w, next, d) == before(w, t, d) {
                    reach[t] |= 1 << next;
                }
            }
        }
    }
    for middle in 0..count {
        for from in 0..count {
            if reach[from] & (1 << middle) != 0 {
                reach[from] |= reach[middle];
            }
        }
    }
    (0..count).all(|t| reach[t] & (1 << t) == 0)
}

fn wrote(scenario: &Scenario, w: &World, t: usize, d: usize) -> bool {
    match commit(w, t) {
        Some((_, rec)) => rec.deeds[d].writes(),
        None if scenario.scripts[t].uses[d] == Use::Delete => !w.txns[t].seen[d].absent,
        None => !matches!(scenario.scripts[t].uses[d], Use::Read | Use::No),
    }
}
