//! Who holds which shards. Each processor is a member as long as it holds a lock of its own; those that live share the shards
//! out evenly, in the order of their names. What a dead one held is taken over; what is too much is given back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use txn_lock::Guard;
use txn_lock::instance::random;

use crate::config::Assignment;
use crate::error::Result;
use crate::inner::Inner;
use crate::name::shard_name;
use crate::shards::{Holding, Lanes};
use crate::source::Claim;

/// The category of the locks of shards.
const SHARD: &str = "outbox-shard";

/// The category of the locks by which processors are members.
const MEMBER: &str = "outbox-member";

/// Shares the shards out again and again, until the processor stops; then gives back what it holds.
pub(crate) async fn run(this: Arc<Inner>) {
    let pace = this.config.pace();
    let mut member =
        Member { id: format!("{}/{}", this.source.name(), random(&this.domain)), guard: None };
    while !this.stop.is_cancelled() {
        if let Err(error) = round(&this, &mut member).await {
            let source = this.source.name();
            tracing::warn!(source, %error, "could not share the shards out");
        }
        tokio::select! {
            biased;
            () = this.stop.cancelled() => {}
            () = this.clock().sleep(pace) => {}
        }
    }
    let all: Vec<u16> = this.shards.holdings.lock().keys().copied().collect();
    for shard in all {
        give_back(&this, shard);
    }
}

/// One's own membership.
struct Member {
    id: String,
    guard: Option<Guard>,
}

async fn round(this: &Arc<Inner>, member: &mut Member) -> Result<()> {
    forget_lost(this);
    let is_shared = matches!(this.config.assignment, Assignment::Shared);
    if is_shared && member.guard.as_ref().is_none_or(|guard| guard.is_lost()) {
        member.guard = this.locks.try_lock(MEMBER, &member.id).await?;
    }
    let seen = Seen::look(this).await?;
    let (wanted, first) = match &this.config.assignment {
        Assignment::Static(own) => (own.len(), 0),
        Assignment::Shared => share(this.source.shards(), &seen.members, &member.id),
    };
    let mine: Vec<u16> = this.shards.holdings.lock().keys().copied().collect();
    for shard in mine.iter().skip(wanted) {
        give_back(this, *shard);
    }
    let room = wanted.saturating_sub(mine.len());
    let may_take = |shard: &u16| {
        let is_allowed = match &this.config.assignment {
            Assignment::Static(own) => own.contains(shard),
            Assignment::Shared => true,
        };
        is_allowed && !mine.contains(shard) && !this.shards.leaving.lock().contains(shard)
    };
    // Members begin at different ends, so that they do not all want the same.
    let (behind, before): (Vec<u16>, Vec<u16>) = seen.free.into_iter().partition(|at| *at >= first);
    let chosen: Vec<u16> = behind.into_iter().chain(before).filter(may_take).take(room).collect();
    let granted = futures::future::join_all(chosen.iter().map(async |shard| {
        let guard = this.locks.try_lock(SHARD, &id(this, *shard)).await?;
        if let Some(guard) = guard {
            // Whoever had it before writes nothing any more, before anything of it is read.
            this.source.claimed(&Claim { shard: *shard, held: guard.held() }).await?;
            let holding = Holding { guard, lanes: Lanes::default() };
            this.shards.holdings.lock().insert(*shard, holding);
            *this.shards.came.lock() = true;
            this.heard.wake();
        }
        Ok(())
    }));
    granted.await.into_iter().collect()
}

/// How many shards a member is to hold, and from which on.
fn share(shards: u16, members: &BTreeSet<String>, own: &str) -> (usize, u16) {
    let mut members: BTreeSet<&str> = members.iter().map(String::as_str).collect();
    members.insert(own);
    let shards = usize::from(shards);
    let rank = members.iter().take_while(|member| **member != own).count();
    let (each, rest) = (shards / members.len(), shards % members.len());
    let first = rank * each + rank.min(rest);
    (each + usize::from(rank < rest), u16::try_from(first).unwrap_or(0))
}

/// What one look at the locks showed.
struct Seen {
    members: BTreeSet<String>,
    /// The shards that nobody holds who lives.
    free: BTreeSet<u16>,
}

impl Seen {
    async fn look(this: &Inner) -> Result<Self> {
        let prefix = format!("{}/", this.source.name());
        let mut members = BTreeSet::new();
        let mut free: BTreeSet<u16> = (0..this.source.shards()).collect();
        let names: BTreeMap<String, u16> = free.iter().map(|at| (id(this, *at), *at)).collect();
        let mut dead: BTreeMap<String, bool> = BTreeMap::new();
        let known = this.locks.list_known().await?;
        for (name, format) in &known.newer {
            if name.category() == SHARD
                && let Some(shard) = names.get(name.id())
            {
                // It is left to those who can read it.
                free.remove(shard);
                tracing::warn!(lock = %name, format, "the lock of a shard has a format that this version does not know");
            }
        }
        for lock in known.locks {
            let Some(holder) = &lock.holder else { continue };
            let is_member = lock.category == MEMBER && lock.id.starts_with(&prefix);
            let shard = names.get(&lock.id).filter(|_| lock.category == SHARD);
            if !is_member && shard.is_none() {
                continue;
            }
            let is_dead = match dead.get(&holder.instance) {
                Some(is_dead) => *is_dead,
                None => this.locks.is_dead(holder).await?,
            };
            dead.insert(holder.instance.clone(), is_dead);
            if is_dead {
                continue;
            }
            if is_member {
                members.insert(lock.id.clone());
            }
            if let Some(shard) = shard {
                free.remove(shard);
            }
        }
        Ok(Self { members, free })
    }
}

fn id(this: &Inner, shard: u16) -> String {
    format!("{}/{}", this.source.name(), shard_name(shard))
}

/// Drops what was lost. Its lanes have noticed by themselves.
fn forget_lost(this: &Inner) {
    this.shards.holdings.lock().retain(|_, holding| !holding.guard.is_lost());
}

/// Gives a shard back once its lanes have ended.
fn give_back(this: &Arc<Inner>, shard: u16) {
    let Some(holding) = this.shards.holdings.lock().remove(&shard) else { return };
    this.shards.leaving.lock().insert(shard);
    holding.lanes.draining.cancel();
    holding.lanes.tasks.close();
    let inner = this.clone();
    this.tasks.spawn(async move {
        holding.lanes.tasks.wait().await;
        if let Err(error) = holding.guard.unlock().await {
            tracing::debug!(shard, %error, "a shard is given back later");
        }
        inner.shards.leaving.lock().remove(&shard);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_together_everything() {
        for (shards, count) in [(16, 1), (16, 3), (1, 2), (7, 7), (5, 9), (256, 6)] {
            let members: BTreeSet<String> = (0..count).map(|at| format!("m{at}")).collect();
            let shares: Vec<(usize, u16)> =
                members.iter().map(|own| share(shards, &members, own)).collect();
            let sizes = shares.iter().map(|(size, _)| *size);
            assert_eq!(sizes.clone().sum::<usize>(), usize::from(shards));
            assert!(sizes.clone().max() <= sizes.min().map(|least| least + 1));
        }
        // One that does not see itself yet counts all the same.
        assert_eq!(share(4, &BTreeSet::from(["a".to_owned()]), "b"), (2, 2));
    }
}
