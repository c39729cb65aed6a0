//! The distribution of shards among processors.
//!
//! For each of its topics a processor holds a member lock. Live members share the shards of a topic
//! evenly, in the order of their names. A processor takes over the shards of dead processors, and
//! releases surplus shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use txn_lock::instance::random;
use txn_lock::{Guard, LockName};

use crate::config::Assignment;
use crate::error::Result;
use crate::processing::inner::Inner;
use crate::processing::shards::HeldShard;
use crate::queue::shard::Shard;
use crate::queue::source::Claim;

/// The lock category of shards.
pub(crate) const SHARD: &str = "outbox-shard";

/// The lock category of members.
const MEMBER: &str = "outbox-member";

/// Balances the shards until the processor stops, and then releases them.
pub(crate) async fn run(this: Arc<Inner>) {
    let pace = this.config.pace();
    let of =
        |topic: &Arc<str>| Member { topic: topic.clone(), id: random(&this.domain), guard: None };
    let mut members: Vec<Member> = this.topics.names().map(of).collect();
    while !this.stop.is_cancelled() {
        if let Err(error) = round(&this, &mut members).await {
            let source = this.source.name();
            tracing::warn!(source, %error, "could not balance the shards");
        }
        tokio::select! {
            biased;
            () = this.stop.cancelled() => {}
            () = this.clock().sleep(pace) => {}
        }
    }
    let all: Vec<Shard> = this.shards.held_shards.lock().keys().cloned().collect();
    for shard in all {
        release(&this, &shard);
    }
    futures::future::join_all(members.into_iter().map(|member| member.leave(&this))).await;
}

/// The membership of this processor in one topic.
struct Member {
    topic: Arc<str>,
    id: String,
    guard: Option<Guard>,
}

impl Member {
    /// The id of the member lock.
    fn lock(&self, this: &Inner) -> String {
        format!("{}{}", member_prefix(this, &self.topic), self.id)
    }

    async fn join(&mut self, this: &Inner) -> Result<()> {
        if self.guard.as_ref().is_none_or(|guard| guard.is_lost()) {
            self.guard = this.locks.try_lock(MEMBER, &self.lock(this)).await?;
        }
        Ok(())
    }

    /// Releases the lock, and deletes the document.
    ///
    /// The random id is never used again.
    async fn leave(self, this: &Inner) {
        let Some(guard) = self.guard else { return };
        let name = guard.name().clone();
        let released = async {
            guard.unlock().await?;
            this.locks.repository().delete(&name).await
        };
        if let Err(error) = released.await {
            tracing::debug!(lock = %name, %error, "a member lock is released later");
        }
    }
}

async fn round(this: &Arc<Inner>, members: &mut [Member]) -> Result<()> {
    drop_lost(this);
    if matches!(this.config.assignment, Assignment::Shared) {
        let joined = futures::future::join_all(members.iter_mut().map(|member| member.join(this)));
        joined.await.into_iter().collect::<Result<()>>()?;
    }
    let scan = LockScan::read(this).await?;
    let chosen: Vec<Shard> =
        members.iter().flat_map(|member| choose(this, member, &scan)).collect();
    let granted = futures::future::join_all(chosen.into_iter().map(async |shard| {
        let guard = this.locks.try_lock(SHARD, &id(this, &shard)).await?;
        if let Some(guard) = guard {
            // Fences the previous holder before this processor reads the shard.
            this.source.claimed(&Claim { shard: shard.clone(), held: guard.held() }).await?;
            this.shards.add(shard, guard);
            this.listener.wake();
        }
        Ok(())
    }));
    granted.await.into_iter().collect::<Result<()>>()?;
    scan.delete_dead_members(this).await
}

/// The shards of a topic to take. Surplus shards are released first.
fn choose(this: &Arc<Inner>, member: &Member, scan: &LockScan) -> Vec<Shard> {
    let topic = &member.topic;
    let (wanted, first) = match &this.config.assignment {
        Assignment::Static(own) => (own.len(), 0),
        Assignment::Shared => {
            let none = BTreeSet::new();
            share(this.source.shards(), scan.members.get(topic).unwrap_or(&none), &member.id)
        }
    };
    let mine: Vec<Shard> = {
        let held_shards = this.shards.held_shards.lock();
        held_shards.keys().filter(|shard| shard.topic == *topic).cloned().collect()
    };
    for shard in mine.iter().skip(wanted) {
        release(this, shard);
    }
    let may_take = |shard: &&Shard| {
        let is_allowed = match &this.config.assignment {
            Assignment::Static(own) => own.contains(&shard.number),
            Assignment::Shared => true,
        };
        is_allowed && !mine.contains(shard) && !this.shards.releasing.lock().contains(shard)
    };
    // Members start at different shards, so that they do not compete for the same ones.
    let free = scan.free.iter().filter(|shard| shard.topic == *topic);
    let (behind, before): (Vec<&Shard>, Vec<&Shard>) = free.partition(|at| at.number >= first);
    let free = wanted.saturating_sub(mine.len());
    behind.into_iter().chain(before).filter(may_take).take(free).cloned().collect()
}

/// The number of shards of a member, and the first of them.
fn share(shards: u16, members: &BTreeSet<String>, own: &str) -> (usize, u16) {
    let mut members: BTreeSet<&str> = members.iter().map(String::as_str).collect();
    members.insert(own);
    let shards = usize::from(shards);
    let rank = members.iter().take_while(|member| **member != own).count();
    let (each, rest) = (shards / members.len(), shards % members.len());
    let first = rank * each + rank.min(rest);
    (each + usize::from(rank < rest), u16::try_from(first).unwrap_or(0))
}

/// The locks of this processor's topics, as one scan saw them.
struct LockScan {
    /// The live members, by topic.
    members: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// The shards without a live holder.
    free: BTreeSet<Shard>,
    /// The memberships of dead processors.
    dead_members: Vec<LockName>,
}

impl LockScan {
    async fn read(this: &Inner) -> Result<Self> {
        let topics: Vec<(&Arc<str>, String)> =
            this.topics.names().map(|topic| (topic, member_prefix(this, topic))).collect();
        let all = topics.iter().flat_map(|(topic, _)| {
            let of = |number| Shard { topic: Arc::clone(topic), number };
            (0..this.source.shards()).map(of)
        });
        let mut free: BTreeSet<Shard> = all.collect();
        let names: BTreeMap<String, Shard> =
            free.iter().map(|shard| (id(this, shard), shard.clone())).collect();
        let (mut members, mut dead_members) = (BTreeMap::<_, BTreeSet<String>>::new(), Vec::new());
        let mut dead: BTreeMap<String, bool> = BTreeMap::new();
        let known = this.locks.repository().list_known().await?;
        for (name, format) in &known.newer {
            if name.category() == SHARD
                && let Some(shard) = names.get(name.id())
            {
                // Only a newer version of this program can take this shard.
                free.remove(shard);
                tracing::warn!(lock = %name, format, "the lock of a shard has a format that this version does not know");
            }
        }
        for lock in known.locks {
            let shard = names.get(&lock.id).filter(|_| lock.category == SHARD);
            let member =
                topics.iter().filter(|_| lock.category == MEMBER).find_map(|(topic, prefix)| {
                    let id = lock.id.strip_prefix(prefix)?;
                    (!id.contains('/')).then(|| (*topic, id.to_owned()))
                });
            if member.is_none() && shard.is_none() {
                continue;
            }
            let Some(holder) = &lock.holder else {
                dead_members.extend(member.map(|_| lock.name()));
                continue;
            };
            let is_dead = match dead.get(&holder.instance) {
                Some(is_dead) => *is_dead,
                None => this.locks.is_dead(holder).await?,
            };
            dead.insert(holder.instance.clone(), is_dead);
            if is_dead {
                continue;
            }
            if let Some((topic, id)) = member {
                members.entry(topic.clone()).or_default().insert(id);
            }
            if let Some(shard) = shard {
                free.remove(shard);
            }
        }
        Ok(Self { members, free, dead_members })
    }

    /// Deletes the memberships of dead processors, so that later scans skip them.
    async fn delete_dead_members(self, this: &Inner) -> Result<()> {
        for name in self.dead_members {
            this.locks.repository().delete(&name).await?;
        }
        Ok(())
    }
}

/// The prefix of the member locks of a topic.
fn member_prefix(this: &Inner, topic: &str) -> String {
    format!("{}/{topic}/", this.source.name())
}

/// The id of the lock of a shard.
pub(crate) fn id(this: &Inner, shard: &Shard) -> String {
    format!("{}/{shard}", this.source.name())
}

/// Drops lost shards.
///
/// A lane that blocks its thread keeps this process from taking the shard again. Another process
/// can then handle the events after the blocked one.
fn drop_lost(this: &Arc<Inner>) {
    let mut held_shards = this.shards.held_shards.lock();
    let lost: Vec<(Shard, HeldShard)> =
        held_shards.extract_if(.., |_, held_shard| held_shard.guard.is_lost()).collect();
    drop(held_shards);
    for (shard, held_shard) in lost {
        release_in_background(this, shard, held_shard);
    }
}

/// Releases a shard after its lanes have ended.
fn release(this: &Arc<Inner>, shard: &Shard) {
    let Some(held_shard) = this.shards.held_shards.lock().remove(shard) else { return };
    release_in_background(this, shard.clone(), held_shard);
}

fn release_in_background(this: &Arc<Inner>, shard: Shard, held_shard: HeldShard) {
    this.shards.releasing.lock().insert(shard.clone());
    held_shard.lanes.draining.cancel();
    held_shard.lanes.tasks.close();
    let inner = this.clone();
    this.tasks.spawn(async move {
        held_shard.lanes.tasks.wait().await;
        if let Err(error) = held_shard.guard.unlock().await {
            tracing::debug!(%shard, %error, "a shard is released later");
        }
        inner.shards.releasing.lock().remove(&shard);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_cover_all_shards() {
        for (shards, count) in [(16, 1), (16, 3), (1, 2), (7, 7), (5, 9), (256, 6)] {
            let members: BTreeSet<String> = (0..count).map(|at| format!("m{at}")).collect();
            let shares: Vec<(usize, u16)> =
                members.iter().map(|own| share(shards, &members, own)).collect();
            let sizes = shares.iter().map(|(size, _)| *size);
            assert_eq!(sizes.clone().sum::<usize>(), usize::from(shards));
            assert!(sizes.clone().max() <= sizes.min().map(|least| least + 1));
        }
        // A member that does not see its own lock yet counts, too.
        assert_eq!(share(4, &BTreeSet::from(["a".to_owned()]), "b"), (2, 2));
    }
}
