//! The canonical form of a state. States that differ only in names are equal.

use crate::state::{Body, DOCS, ForeignApply, Message, Own, Phase, RECORDS, Txn, World, who};

impl World {
    /// The same state in its canonical form.
    ///
    /// Versions are in order without gaps, messages are in order, and facts that no actor needs any
    /// more are forgotten.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        self.forget();
        for d in 0..DOCS {
            let mut used = 0_u64;
            self.doc_versions(d, |v| used |= 1 << *v);
            self.doc_versions(d, |v| *v = rank(used, *v));
        }
        for who in 1..=u8::try_from(RECORDS).unwrap_or_default() {
            let mut used = 0_u64;
            self.rec_versions(who, |v| used |= 1 << *v);
            self.rec_versions(who, |v| *v = rank(used, *v));
        }
        if let [first, second] = &mut self.net
            && order(first) > order(second)
        {
            std::mem::swap(first, second);
        }
        self
    }

    fn forget(&mut self) {
        let mut locked = 0_u8;
        for slot in &self.docs {
            for doc in [slot.now, slot.durable] {
                if doc.lock > 0 {
                    locked |= 1 << (doc.lock - 1);
                }
            }
        }
        for (t, txn) in self.txns.iter_mut().enumerate() {
            // A transaction may still need the facts about its own record.
            txn.knows &= locked | 1 << (who(t, txn.attempt) - 1);
            match txn.phase {
                Phase::Done | Phase::Dead => {
                    txn.knows = 0;
                    (txn.foreign, txn.own) = (ForeignApply::default(), Own::default());
                    (txn.held, txn.unsure, txn.done) = ([0; DOCS], 0, 0);
                    txn.forget_versions();
                }
                Phase::Applying => {
                    (txn.held, txn.unsure) = ([0; DOCS], 0);
                    txn.forget_versions();
                }
                _ => {}
            }
        }
        for janitor in &mut self.janitors {
            janitor.knows &= locked;
        }
        for slot in &mut self.recs {
            if !slot.dirty {
                slot.durable = slot.now;
            }
        }
    }
}

impl Txn {
    fn forget_versions(&mut self) {
        for seen in &mut self.seen {
            (seen.version, seen.holder) = (0, 0);
        }
    }
}

fn rank(used: u64, version: u8) -> u8 {
    if version == 0 {
        return 0;
    }
    let below = used & ((1 << version) - 1) & !1;
    u8::try_from(below.count_ones() + 1).unwrap_or_default()
}

fn order(message: &Option<Message>) -> (u8, usize, u8, u8, u8) {
    match message {
        None => (9, 0, 0, 0, 0),
        Some(Message { expected, body: Body::Doc(d, doc) }) => {
            (0, *d, *expected, doc.lock, doc.writer)
        }
        Some(Message { expected, body: Body::Rec(who, rec) }) => {
            (1, usize::from(*who), *expected, rec.mark as u8, rec.stamp)
        }
    }
}
