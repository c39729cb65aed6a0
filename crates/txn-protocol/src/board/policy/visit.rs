//! Visits the values of a policy that grow without a bound.
//!
//! A model renames these values, which keeps its states finite.

use super::Policy;
use crate::board::visit::Part;

impl Policy {
    /// Visits each moment, ticket and version, which lets a model rename them.
    pub fn visit(&mut self, visit: &mut dyn FnMut(Part<'_>)) {
        let wish = self.wish.as_mut();
        let (first_lock, idle_head_since) = wish.map_or((None, None), |wish| {
            visit(Part::Ticket(&mut wish.entry.ticket));
            (wish.first_lock.as_mut(), wish.idle_head_since.as_mut())
        });
        let handoffs = self.handoffs.as_mut();
        let (since, last) = handoffs.map_or((None, None), |(a, b)| (Some(a), Some(b)));
        let moments = [
            first_lock,
            idle_head_since,
            since,
            last,
            self.engaged_until.as_mut(),
            self.looked_at.as_mut(),
            self.failed_at.as_mut(),
            self.yielding_since.as_mut(),
            self.alone_since.as_mut(),
            self.written_at.as_mut(),
            self.idle_since.as_mut(),
            self.work.passed_over_since.as_mut(),
        ];
        moments.into_iter().flatten().for_each(|moment| visit(Part::Time(moment)));
        for observed in self.observed.values_mut() {
            visit(Part::Ticket(&mut observed.ticket));
            visit(Part::Time(&mut observed.since));
            observed.head_since.iter_mut().for_each(|moment| visit(Part::Time(moment)));
        }
        visit(Part::Ticket(&mut self.last_ticket));
        self.others.values_mut().for_each(|entry| visit(Part::Ticket(&mut entry.ticket)));
        let writing = self.writing.iter_mut().map(|write| (&mut write.slot, &mut write.over));
        let slots = self.slots.iter_mut().map(|(slot, version)| (slot, version));
        for (slot, version) in slots.chain(writing) {
            slot.visit(visit);
            version.iter_mut().for_each(|version| visit(Part::Version(version)));
        }
    }
}
