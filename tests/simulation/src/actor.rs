//! An actor: one session of a process, which runs one operation after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use txn_core::{Collection, CompareAndSet, Domain, Error, ErrorKind, Options, Transaction, Typed};

use crate::history::{Content, Doc, Fate, History, Kind};
use crate::process::Process;
use crate::scenario::{ACCOUNTS, SLOTS, TOKENS};

/// The one collection of the world.
pub(crate) type World = Collection<Typed<Content>>;

/// One actor.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    /// Its process.
    pub(crate) process: Arc<Process>,
    /// The engine under test, in this process.
    pub(crate) domain: Domain,
    /// The documents.
    pub(crate) world: World,
    /// What everybody did.
    pub(crate) history: History,
    /// When the world began.
    pub(crate) origin: Instant,
    /// Transactions lock what they read.
    pub(crate) lock_reads: bool,
}

/// What an operation reads and writes, as far as it is decided before it runs.
#[derive(Clone, Debug)]
enum Plan {
    Transfer { legs: BTreeMap<Doc, i64>, journal: bool },
    Audit { singly: bool },
    OnCall { leaves: u8 },
    Claim { wants: u8 },
    Token { to: u8 },
    Slot(Doc),
    Prune(Doc),
    Note(Doc),
    CompareAndSet(Doc),
    Look { doc: Doc, verified: bool },
}

impl Plan {
    fn kind(&self) -> Kind {
        match self {
            Self::Transfer { .. } => Kind::Transfer,
            Self::Audit { .. } => Kind::Audit,
            Self::OnCall { .. } => Kind::OnCall,
            Self::Claim { .. } => Kind::Claim,
            Self::Token { .. } => Kind::Token,
            Self::Slot(_) => Kind::Slot,
            Self::Prune(_) => Kind::Prune,
            Self::Note(_) => Kind::Note,
            Self::CompareAndSet(_) => Kind::CompareAndSet,
            Self::Look { verified: false, .. } => Kind::Look,
            Self::Look { verified: true, .. } => Kind::VerifiedLook,
        }
    }
}

/// Everything of which several documents together have a meaning.
fn audited() -> Vec<Doc> {
    let accounts = (0..ACCOUNTS).map(Doc::Account);
    let pairs = (0..2).flat_map(|n| [Doc::OnCall(n), Doc::Claim(n)]);
    accounts.chain(pairs).chain((0..TOKENS).map(Doc::Token)).collect()
}

fn account(dice: &mut fastrand::Rng) -> Doc {
    Doc::Account(dice.u8(..ACCOUNTS))
}

/// Legs that sum to zero.
fn legs(dice: &mut fastrand::Rng) -> BTreeMap<Doc, i64> {
    let mut accounts: Vec<u8> = (0..ACCOUNTS).collect();
    dice.shuffle(&mut accounts);
    accounts.truncate(dice.usize(2..=3));
    let mut legs = BTreeMap::new();
    let mut sum = 0;
    for account in &accounts[1..] {
        let amount = dice.i64(-50..=50);
        sum += amount;
        legs.insert(Doc::Account(*account), amount);
    }
    legs.insert(Doc::Account(accounts[0]), -sum);
    legs
}

impl Actor {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn plan(&self, dice: &mut fastrand::Rng) -> Plan {
        match dice.u8(..100) {
            0..28 => Plan::Transfer { legs: legs(dice), journal: dice.u8(..3) == 0 },
            28..42 => Plan::Audit { singly: dice.bool() },
            42..51 => Plan::OnCall { leaves: dice.u8(..2) },
            51..59 => Plan::Claim { wants: dice.u8(..2) },
            59..67 => Plan::Token { to: dice.u8(..TOKENS) },
            67..74 => Plan::Slot(Doc::Slot(dice.u8(..SLOTS))),
            74..80 => match self.history.journal(dice.usize(..1_000)) {
                Some(doc) => Plan::Prune(doc),
                None => Plan::Slot(Doc::Slot(0)),
            },
            80..86 => Plan::Note(account(dice)),
            86..92 => Plan::CompareAndSet(account(dice)),
            _ => Plan::Look { doc: account(dice), verified: dice.bool() },
        }
    }

    /// Runs one operation to its end, or until the process dies.
    pub(crate) async fn run_one(&self, dice: &mut fastrand::Rng, deadline: Duration) {
        let plan = self.plan(dice);
        let kind = plan.kind();
        let number = self.history.begin(self.process.name(), kind, self.now());
        if let Plan::Transfer { legs, .. } = &plan {
            self.history.note(number, |operation| operation.legs.clone_from(legs));
        }
        let fate = match &plan {
            Plan::CompareAndSet(doc) => self.compare_and_set(number, *doc, dice).await,
            Plan::Look { doc, verified } => self.look(number, *doc, *verified).await,
            plan => self.transact(number, plan, dice, deadline).await,
        };
        let now = self.now();
        if let Some(fate) = fate {
            self.history.note(number, |operation| {
                (operation.fate, operation.ended) = (fate, Some(now));
            });
        }
    }

    async fn transact(
        &self,
        number: u64,
        plan: &Plan,
        dice: &mut fastrand::Rng,
        deadline: Duration,
    ) -> Option<Fate> {
        let read_only = matches!(plan, Plan::Audit { .. }) && dice.bool();
        let options = Options::default()
            .with_pessimistic(dice.u8(..5) == 0)
            .with_lock_reads(self.lock_reads || dice.u8(..5) == 0)
            .with_read_only(read_only)
            .with_deadline(Some(deadline));
        let pauses = Mutex::new(dice.fork());
        let dawdles = dice.u64(..4) * dice.u64(..4) * 10;
        let run = self.domain.run::<_, Error, _>(&options, async |tx| {
            self.history.note(number, |operation| {
                // Whoever asks has a record written; some go the short way.
                operation.tid = (!plan.kind().may_leave_no_record()).then(|| tx.tid());
                operation.reads.clear();
                operation.writes.clear();
            });
            self.carry_out(tx, number, plan).await?;
            let pause = pauses.lock().u64(..=dawdles);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.process.step().await;
            Ok(())
        });
        // Some callers go away.
        if dice.u8(..25) == 0 {
            let patience = Duration::from_millis(dice.u64(..200));
            return Some(fate(tokio::time::timeout(patience, run).await.ok()?.map(drop)));
        }
        Some(fate(run.await.map(drop)))
    }

    async fn get(&self, tx: &Transaction, number: u64, doc: Doc) -> Result<Option<Content>, Error> {
        let content = tx.get(&self.world, doc.id()).await?;
        self.history.note(number, |operation| {
            operation.reads.insert(doc, content.clone());
        });
        Ok(content)
    }

    fn put(&self, tx: &Transaction, number: u64, doc: Doc, content: &Content) -> Result<(), Error> {
        self.note_write(number, doc, Some(content.clone()));
        tx.put(&self.world, doc.id(), content)
    }

    fn delete(&self, tx: &Transaction, number: u64, doc: Doc) -> Result<(), Error> {
        self.note_write(number, doc, None);
        tx.delete(&self.world, doc.id())
    }

    fn note_write(&self, number: u64, doc: Doc, content: Option<Content>) {
        self.history.note(number, |operation| {
            operation.writes.insert(doc, content);
        });
    }

    async fn carry_out(&self, tx: &Transaction, number: u64, plan: &Plan) -> Result<(), Error> {
        match plan {
            Plan::Transfer { legs, journal } => {
                for (doc, leg) in legs {
                    let content = self.get(tx, number, *doc).await?.unwrap_or_default();
                    self.put(tx, number, *doc, &content.after(number, *leg))?;
                }
                if *journal {
                    let (doc, content) = (Doc::Journal(number), Content::default());
                    let content = content.after(number, 0);
                    self.note_write(number, doc, Some(content.clone()));
                    tx.insert(&self.world, doc.id(), &content)?;
                }
            }
            Plan::Audit { singly: true } => {
                for doc in audited() {
                    self.get(tx, number, doc).await?;
                }
            }
            Plan::Audit { singly: false } => {
                let docs = audited();
                let found = tx.get_many(&self.world, docs.iter().map(|doc| doc.id())).await?;
                self.history.note(number, |operation| {
                    operation.reads.extend(docs.iter().copied().zip(found.iter().cloned()));
                });
            }
            Plan::OnCall { leaves } => {
                let me = self.get(tx, number, Doc::OnCall(*leaves)).await?.unwrap_or_default();
                let other = self.get(tx, number, Doc::OnCall(1 - leaves)).await?;
                let other = other.unwrap_or_default();
                if me.on && other.on {
                    let me = Content { on: false, ..me.after(number, 0) };
                    self.put(tx, number, Doc::OnCall(*leaves), &me)?;
                } else {
                    for (doc, content) in [(*leaves, me), (1 - leaves, other)] {
                        let content = Content { on: true, ..content.after(number, 0) };
                        self.put(tx, number, Doc::OnCall(doc), &content)?;
                    }
                }
            }
            Plan::Claim { wants } => {
                let mine = self.get(tx, number, Doc::Claim(*wants)).await?;
                let other = self.get(tx, number, Doc::Claim(1 - wants)).await?;
                match (mine, other) {
                    (None, None) => {
                        let content = Content::default().after(number, 0);
                        self.put(tx, number, Doc::Claim(*wants), &content)?;
                    }
                    (mine, other) => {
                        for (doc, found) in [(*wants, mine), (1 - wants, other)] {
                            if found.is_some() {
                                self.delete(tx, number, Doc::Claim(doc))?;
                            }
                        }
                    }
                }
            }
            Plan::Token { to } => {
                let mut from = None;
                for n in 0..TOKENS {
                    if self.get(tx, number, Doc::Token(n)).await?.is_some() {
                        from = Some(n);
                    }
                }
                let Some(from) = from.filter(|from| from != to) else { return Ok(()) };
                self.delete(tx, number, Doc::Token(from))?;
                let content = Content::default().after(number, 0);
                self.put(tx, number, Doc::Token(*to), &content)?;
            }
            Plan::Slot(doc) => match self.get(tx, number, *doc).await? {
                None => {
                    let content = Content::default().after(number, 0);
                    self.note_write(number, *doc, Some(content.clone()));
                    tx.insert(&self.world, doc.id(), &content)?;
                }
                Some(_) => self.delete(tx, number, *doc)?,
            },
            Plan::Prune(doc) => {
                if self.get(tx, number, *doc).await?.is_some() {
                    self.delete(tx, number, *doc)?;
                }
            }
            Plan::Note(doc) => {
                let content = self.get(tx, number, *doc).await?.unwrap_or_default();
                self.put(tx, number, *doc, &content.after(number, 0))?;
            }
            // Without a transaction.
            Plan::CompareAndSet(_) | Plan::Look { .. } => {}
        }
        Ok(())
    }

    async fn look(&self, number: u64, doc: Doc, verified: bool) -> Option<Fate> {
        let reader = self.domain.reader();
        let reader = if verified { reader.verified() } else { reader };
        let read = reader.get(&self.world, doc.id()).await;
        if let Ok(content) = &read {
            self.history.note(number, |operation| {
                operation.reads.insert(doc, content.clone());
            });
        }
        Some(fate(read.map(drop)))
    }

    async fn compare_and_set(
        &self,
        number: u64,
        doc: Doc,
        dice: &mut fastrand::Rng,
    ) -> Option<Fate> {
        let snapshot = match self.domain.reader().read(&self.world, doc.id()).await {
            Ok(snapshot) => snapshot,
            Err(error) => return Some(fate(Err(error))),
        };
        let Some(before) = snapshot.value.clone() else {
            return Some(Fate::Aborted("mismatch: a stale read shows no document".to_owned()));
        };
        let after = before.clone().after(number, 0);
        self.history.note(number, |operation| {
            operation.reads.insert(doc, Some(before));
            operation.writes.insert(doc, Some(after.clone()));
        });
        tokio::time::sleep(Duration::from_millis(dice.u64(..20))).await;
        match self.domain.compare_and_set(&self.world, &snapshot, &after).await {
            Ok(CompareAndSet::Written(_)) => Some(Fate::Committed),
            Ok(CompareAndSet::Mismatch) => Some(Fate::Aborted("mismatch".to_owned())),
            Err(error) => Some(fate(Err(error))),
        }
    }
}

fn fate(result: Result<(), Error>) -> Fate {
    match result {
        Ok(()) => Fate::Committed,
        Err(error) if error.kind() == ErrorKind::Unknown => Fate::Unknown,
        Err(error) => Fate::Aborted(format!("{:?}: {error}", error.kind())),
    }
}
