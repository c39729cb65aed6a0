//! The outbox of a domain as a source of events.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use txn_core::Transaction;
use txn_core::scan::{PAGE, candidates, candidates_from};
use txn_core::store::Filter;
use txn_lock::instance::wall_ms;
use txn_lock::stored::Stored;

use crate::config::AfterDeadLetter;
use crate::error::{OutboxError, Result};
use crate::outbox::{Inner, Outbox};
use crate::queue::event::{DeadLetter, DeadLetters, Event};
use crate::queue::local_wakeups::LocalWakeups;
use crate::queue::model::{DeadLetterDocument, EventDocument, Failing, QUEUE, Queue, known};
use crate::queue::name::QueueName;
use crate::queue::shard::{Shard, shard_name};
use crate::queue::source::{
    Backlog, Claim, Discovered, EventSource, FailureEffect, RecordedFailure,
};

/// The maximum number of queues per poll, over all topics.
///
/// Other processes may have many queues of topics that this process does not know. The next poll
/// continues at the cursor.
const MOST_POLLED: usize = 5_000;

/// The maximum number of remembered cursors, one for each set of shards.
const MOST_CURSORS: usize = 64;

/// The prefix of dead letter ids.
const DEAD: &str = "dead:";

#[async_trait]
impl EventSource for Outbox {
    fn name(&self) -> &str {
        "outbox"
    }

    fn shards(&self) -> u16 {
        self.inner.shards
    }

    fn local_wakeups(&self) -> &LocalWakeups {
        &self.inner.wakeups
    }

    async fn discover(&self, shards: &BTreeSet<Shard>) -> Result<Discovered> {
        self.inner.poll(shards, MOST_POLLED).await
    }

    async fn next(&self, name: &QueueName, most: usize) -> Result<Vec<Event>> {
        let inner = &self.inner;
        let id = name.document();
        let found = inner.domain.reader().verified().get(&inner.queues, &id).await?;
        let Some(queue) = found.map(|found| known(&id, found)).transpose()? else {
            return Ok(Vec::new());
        };
        if queue.blocked.is_some() {
            return Ok(Vec::new());
        }
        let most = u64::try_from(most).unwrap_or(u64::MAX).min(queue.waiting());
        let positions: Vec<u64> = (queue.handled + 1..=queue.handled + most).collect();
        let found = inner.events(positions.iter().map(|at| (name, &queue, *at))).await?;
        let mut events = Vec::with_capacity(positions.len());
        for (at, event) in positions.into_iter().zip(found) {
            match event {
                Ok(Some(event)) => events.push(queue.waiting_event(event)),
                // Returns the events before the unreadable one first.
                _ if !events.is_empty() => break,
                Ok(None) if inner.is_handled(name, at).await? => return Ok(Vec::new()),
                Ok(None) => {
                    return Err(OutboxError::Missing { document: name.event_document(at) });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(events)
    }

    async fn postpone(&self, claim: &Claim, event: &Event) -> Result<bool> {
        let inner = &self.inner;
        let soon_ms = inner.soon_ms();
        let Some(at_ms) = event.not_before_ms.filter(|at_ms| *at_ms > soon_ms) else {
            return Ok(false);
        };
        let postponed = inner.domain.transact(async |tx| {
            claim.check(tx).await?;
            let mut queue = inner.next_queue(tx, event).await?;
            if queue.not_before_ms != Some(at_ms) {
                queue.not_before_ms = Some(at_ms);
                inner.put(tx, &event.queue, queue)?;
            }
            Ok::<_, OutboxError>(true)
        });
        postponed.await
    }

    async fn begin(&self, claim: &Claim, event: &Event) -> Result<()> {
        let inner = &self.inner;
        let recorded = inner.domain.transact(async |tx| {
            claim.check(tx).await?;
            let mut queue = inner.next_queue(tx, event).await?;
            queue.begin(event.sequence);
            inner.put(tx, &event.queue, queue)
        });
        recorded.await
    }

    async fn take(&self, tx: &Transaction, event: &Event) -> Result<Option<u64>> {
        let mut queue = self.inner.next_queue(tx, event).await?;
        queue.advance();
        self.inner.remove(tx, &mut queue, event)?;
        let waiting = queue.waiting();
        self.inner.put(tx, &event.queue, queue)?;
        Ok(Some(waiting))
    }

    fn takes_several(&self) -> bool {
        true
    }

    async fn taken(&self, _: &Claim, _: &Event) -> Result<()> {
        Ok(())
    }

    async fn done(&self, claim: &Claim, event: &Event) -> Result<()> {
        self.inner
            .domain
            .transact(async |tx| {
                claim.check(tx).await?;
                self.take(tx, event).await.map(drop)
            })
            .await
    }

    async fn failed(
        &self,
        claim: &Claim,
        event: &Event,
        why: &str,
        effect: FailureEffect,
    ) -> Result<RecordedFailure> {
        let inner = &self.inner;
        let recorded = inner.domain.transact(async |tx| {
            claim.check(tx).await?;
            let mut queue = match inner.next_queue(tx, event).await {
                Err(OutboxError::NotNext(_)) => return Ok(RecordedFailure::AlreadyHandled),
                queue => queue?,
            };
            let failures = queue.failures_of(event.sequence).saturating_add(1);
            let recorded = match effect {
                FailureEffect::Retry => {
                    let (sequence, error) = (event.sequence, why.to_owned());
                    queue.failing = Some(Failing { sequence, failures, unfinished: 0, error });
                    RecordedFailure::Failed(failures)
                }
                FailureEffect::SetAside(after) => {
                    let dead =
                        DeadLetterDocument::new(event, failures, why, wall_ms(&inner.domain));
                    tx.put(
                        &inner.dead_letters,
                        DeadLetterDocument::document(&event.id),
                        &Stored::Known(dead),
                    )?;
                    inner.remove(tx, &mut queue, event)?;
                    match after {
                        AfterDeadLetter::Continue => queue.advance(),
                        AfterDeadLetter::Wait => {
                            (queue.blocked, queue.failing) = (Some(event.sequence), None);
                            queue.not_before_ms = None;
                        }
                    }
                    RecordedFailure::SetAside
                }
            };
            inner.put(tx, &event.queue, queue)?;
            Ok::<_, OutboxError>(recorded)
        });
        recorded.await
    }

    async fn dead_letters(&self) -> Result<DeadLetters> {
        let inner = &self.inner;
        let ids: Vec<_> = inner.dead_ids().await?.into_iter().collect();
        let mut dead = DeadLetters::default();
        for ids in ids.chunks(PAGE) {
            let found = inner.domain.reader().verified().get_many(&inner.dead_letters, ids).await?;
            for (id, letter) in ids.iter().zip(found) {
                match letter {
                    Some(Stored::Known(letter)) => dead.letters.push(letter.dead_letter()?),
                    Some(Stored::Newer(format)) => {
                        let id = id.strip_prefix(DEAD).unwrap_or(id);
                        dead.newer.insert(id.to_owned(), format);
                    }
                    None => {}
                }
            }
        }
        Ok(DeadLetters::new(dead.letters, dead.newer))
    }

    async fn dead_letter(&self, id: &str) -> Result<DeadLetter> {
        let inner = &self.inner;
        let document = DeadLetterDocument::document(id);
        let found = inner.domain.reader().verified().get(&inner.dead_letters, &document).await?;
        let found = found.ok_or_else(|| OutboxError::NotFound(id.to_owned()))?;
        known(&document, found)?.dead_letter()
    }

    async fn retry(&self, id: &str) -> Result<()> {
        let inner = &self.inner;
        inner
            .domain
            .transact(async |tx| {
                let (event, mut queue) = inner.take_dead_letter(tx, id).await?;
                if queue.blocked == Some(event.sequence) {
                    queue.unblock();
                    if !queue.store_inline(&event) {
                        let id = event.queue.event_document(event.sequence);
                        tx.put(
                            &inner.event_documents,
                            id,
                            &Stored::Known(EventDocument::new(&event)),
                        )?;
                    }
                    inner.put_and_notify(tx, &event.queue, queue, Some(&event))?;
                } else {
                    let event = Event { sequence: queue.appended + 1, ..event };
                    inner.append(tx, queue, &event)?;
                }
                Ok(())
            })
            .await
    }

    async fn discard(&self, id: &str) -> Result<()> {
        let inner = &self.inner;
        inner
            .domain
            .transact(async |tx| {
                let (event, mut queue) = inner.take_dead_letter(tx, id).await?;
                if queue.blocked == Some(event.sequence) {
                    queue.unblock();
                    queue.advance();
                    inner.put_and_notify(tx, &event.queue, queue, None)?;
                }
                Ok(())
            })
            .await
    }

    async fn backlog(&self) -> Result<Backlog> {
        let inner = &self.inner;
        let mut backlog = Backlog { dead: inner.dead_ids().await?.len(), ..Backlog::default() };
        let mut names = inner.names(Filter::Exists("pending")).await?;
        names.extend(inner.names(Filter::Exists("blocked")).await?);
        let names: Vec<QueueName> = names.into_iter().collect();
        let reader = inner.domain.reader();
        for names in names.chunks(PAGE) {
            let ids: Vec<String> = names.iter().map(QueueName::document).collect();
            let found = reader.get_many(&inner.queues, &ids).await?;
            let mut open = Vec::new();
            for ((id, name), queue) in ids.iter().zip(names).zip(found) {
                let Some(queue) = queue.map(|queue| known(id, queue)).transpose()? else {
                    continue;
                };
                let dead = u64::from(queue.blocked.is_some());
                backlog.blocked += usize::from(queue.blocked.is_some());
                if queue.waiting() > dead {
                    let shard = queue.shard().unwrap_or_else(|| name.shard(inner.shards));
                    open.push((name, shard, queue, dead));
                }
            }
            let firsts =
                open.iter().map(|(name, _, queue, dead)| (*name, queue, queue.handled + 1 + dead));
            let firsts = inner.events(firsts).await?;
            for ((_, shard, queue, dead), first) in open.iter().zip(firsts) {
                // A timer that is not due has no lag.
                let since_ms = first.ok().flatten().map(|event| event.waits_since_ms());
                backlog.add(shard, queue.waiting() - dead, since_ms);
            }
        }
        Ok(backlog)
    }
}

/// The queues of these document ids.
fn names_of(ids: &BTreeSet<Arc<str>>) -> BTreeSet<QueueName> {
    let names = ids.iter().filter_map(|id| {
        let (topic, key) = id.strip_prefix(QUEUE)?.split_once('/')?;
        QueueName::new(topic, key).ok()
    });
    names.collect()
}

impl Inner {
    /// The queues that may match a filter.
    async fn names(&self, filter: Filter) -> Result<BTreeSet<QueueName>> {
        let ids = candidates(&self.domain, self.queues.name(), filter, usize::MAX).await?;
        Ok(names_of(&ids))
    }

    /// Polls these shards for about `most` queues, from the last cursor.
    pub(crate) async fn poll(&self, shards: &BTreeSet<Shard>, most: usize) -> Result<Discovered> {
        // Documents of format 1 have only the number of the shard.
        let numbers = shards.iter().map(|shard| shard_name(shard.number).to_owned());
        let names: BTreeSet<String> = shards.iter().map(Shard::to_string).chain(numbers).collect();
        // The clock chooses candidates only. Each event decides about its own delivery.
        let soon_ms = self.soon_ms();
        let filter = || {
            let names = names.iter().map(String::as_str);
            Filter::any_of_up_to("pending", names, "not_before_ms", soon_ms)
        };
        let from = self.poll_cursors.lock().remove(shards);
        let (continues, of) = (from.is_some(), self.queues.name());
        let (ids, next) = match candidates_from(&self.domain, of, filter(), most, from).await {
            // The cursor has expired, or the store has lost it. The scan is unbounded, because
            // bounded polls from the start might never advance.
            Err(_) if continues => {
                (candidates(&self.domain, of, filter(), usize::MAX).await?, None)
            }
            found => found?,
        };
        let topics: BTreeSet<&str> = shards.iter().map(|shard| &*shard.topic).collect();
        let is_of_topic = |name: &QueueName| topics.contains(name.topic());
        let queues = names_of(&ids).into_iter().filter(is_of_topic).collect();
        let leaves_some = next.is_some();
        if let Some(next) = next {
            let mut poll_cursors = self.poll_cursors.lock();
            if poll_cursors.len() >= MOST_CURSORS {
                poll_cursors.clear();
            }
            poll_cursors.insert(shards.clone(), next);
        }
        Ok(Discovered { queues, leaves_some })
    }

    async fn dead_ids(&self) -> Result<BTreeSet<Arc<str>>> {
        let filter = Filter::any_of("kind", ["dead"]);
        let ids = candidates(&self.domain, self.dead_letters.name(), filter, usize::MAX).await?;
        Ok(ids.into_iter().filter(|id| id.starts_with(DEAD)).collect())
    }

    /// Reads waiting events by queue and position.
    ///
    /// The call reads from the store what the queues do not contain.
    ///
    /// The result has the order of the arguments. `None`: the event is missing.
    async fn events<'a>(
        &self,
        positions: impl Iterator<Item = (&'a QueueName, &'a Queue, u64)>,
    ) -> Result<Vec<Result<Option<Event>>>> {
        let mut events = Vec::new();
        let mut others = Vec::new();
        for (name, queue, at) in positions {
            let event = queue.inline_event(name, at);
            if event.is_none() {
                others.push((events.len(), name, name.event_document(at)));
            }
            events.push(Ok(event));
        }
        if !others.is_empty() {
            let ids = others.iter().map(|(.., id)| id);
            let found =
                self.domain.reader().verified().get_many(&self.event_documents, ids).await?;
            for ((at, name, id), letter) in others.into_iter().zip(found) {
                let letter = letter.map(|letter| known(&id, letter)).transpose();
                events[at] = letter.map(|letter| letter.map(|letter| letter.event(name)));
            }
        }
        Ok(events)
    }

    /// Reads the queue of an event, which must be the next event.
    async fn next_queue(&self, tx: &Transaction, event: &Event) -> Result<Queue> {
        let queue = self.queue(tx, &event.queue).await?;
        let queue = queue.ok_or_else(|| OutboxError::NotNext(event.id.clone()))?;
        queue.check_next(event)?;
        Ok(queue)
    }

    /// Whether the event at this position has been handled in the meantime.
    async fn is_handled(&self, name: &QueueName, sequence: u64) -> Result<bool> {
        let found = self.domain.reader().verified().get(&self.queues, name.document()).await?;
        let queue = found.map(|found| known(&name.document(), found)).transpose()?;
        Ok(queue.is_none_or(|queue| queue.handled >= sequence || queue.blocked == Some(sequence)))
    }

    /// Removes a dead letter in a transaction. Returns its event and its queue.
    async fn take_dead_letter(&self, tx: &Transaction, id: &str) -> Result<(Event, Queue)> {
        let document = DeadLetterDocument::document(id);
        let found = tx.get(&self.dead_letters, &document).await?;
        let dead = found.map(|found| known(&document, found)).transpose()?;
        let dead = dead.ok_or_else(|| OutboxError::NotFound(id.to_owned()))?;
        tx.delete(&self.dead_letters, &document)?;
        let DeadLetter { event, .. } = dead.dead_letter()?;
        let queue = self.queue_or_new(tx, &event.queue).await?;
        Ok((Event { failures: 0, ..event }, queue))
    }
}

#[cfg(test)]
mod tests {
    use txn_core::store::MemoryStore;
    use txn_core::{Config, Domain};

    use super::*;
    use crate::config::OutboxConfig;

    /// Each poll is bounded. All polls together find every queue.
    ///
    /// Processors of different topics poll alternately.
    #[tokio::test]
    async fn polls_are_bounded_and_continue() {
        let config = Config::default().with_janitor_interval(None);
        let store = Arc::new(MemoryStore::new());
        let domain = Domain::open_or_create(store, "test", config).await.unwrap();
        let outbox = Outbox::open(&domain, OutboxConfig::default().with_shards(1)).await.unwrap();
        let emitted = domain.transact::<_, OutboxError, _>(async |tx| {
            for at in 0..3 * PAGE {
                for topic in ["first", "second", "third"] {
                    outbox.emit(tx, topic, &format!("k{at}"), &at).await?;
                }
            }
            Ok(())
        });
        emitted.await.unwrap();
        let report = domain.barrier(std::time::Duration::from_secs(60)).await.unwrap();
        report.into_result().unwrap();
        let inner = &outbox.inner;
        let queue = |topic, at| QueueName::new(topic, &format!("k{at}")).unwrap();
        let shards = |topic| BTreeSet::from([queue(topic, 0).shard(1)]);
        let mut found = [Vec::new(), Vec::new()];
        let mut is_over = [false; 2];
        let mut polls = 0;
        while is_over != [true; 2] {
            for (at, topic) in ["first", "second"].into_iter().enumerate() {
                if !is_over[at] {
                    let one = inner.poll(&shards(topic), PAGE).await.unwrap();
                    found[at].extend(one.queues);
                    is_over[at] = !one.leaves_some;
                    polls += 1;
                }
            }
            assert!(polls <= 10, "they go on for ever");
        }
        assert!(polls >= 6, "{polls}");
        for (topic, found) in ["first", "second"].into_iter().zip(&mut found) {
            found.sort();
            let mut all: Vec<QueueName> = (0..3 * PAGE).map(|at| queue(topic, at)).collect();
            all.sort();
            assert!(*found == all, "{topic}");
        }
        // A poll with a lost cursor finds all queues at once.
        assert!(inner.poll(&shards("first"), PAGE).await.unwrap().leaves_some);
        let lost = txn_core::store::Cursor("lost".to_owned());
        inner.poll_cursors.lock().insert(shards("second"), lost);
        let all = inner.poll(&shards("second"), PAGE).await.unwrap();
        assert_eq!((all.queues.len(), all.leaves_some), (3 * PAGE, false));
    }
}
