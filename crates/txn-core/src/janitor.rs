//! The janitor: finds transactions that everybody forgot, decides and applies them, and drops old
//! partitions. It searches only to discover candidates; every verdict is by acknowledged writes.

use std::collections::BTreeSet;

use crate::document::View;
use crate::domain::Domain;
use crate::domain_document::DomainDocument;
use crate::engine::{Engine, view};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{Record, State};
use crate::resolve::Met;
use crate::rules::conflict::Requester;
use crate::stop::Stop;
use crate::store::{Key, Read, Version};
use crate::survey::{Faults, Survey, Suspect};
use crate::tid::{Day, Tid};

/// What a look at a domain found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Locked documents, with their holders as text (a forged lock need not be a tid).
    pub locked: Vec<(Key, String)>,
    /// Records that are neither finished nor aborted, with their state.
    pub open: Vec<(Tid, State)>,
    /// Documents, records and parts of the domain that a person must look at, and what is wrong with them. A whole
    /// collection has the id `*`.
    pub damaged: Vec<(Key, String)>,
    /// Collections and partitions that could not be looked at now, and why. Nothing is known of what is in them.
    pub unreachable: Vec<(String, String)>,
    /// How many transactions were decided or applied.
    pub recovered: usize,
    /// How many partitions of the transaction table were dropped.
    pub partitions_dropped: usize,
}

impl Report {
    /// Whether everything was looked at, and nothing is left over.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.locked.is_empty()
            && self.open.is_empty()
            && self.damaged.is_empty()
            && self.unreachable.is_empty()
    }

    fn add(&mut self, faults: Faults) {
        self.damaged.extend(faults.damaged);
        self.damaged.sort();
        self.damaged.dedup();
        self.unreachable.extend(faults.unreachable);
        self.unreachable.sort();
        self.unreachable.dedup_by(|(name, _), (before, _)| name == before);
    }
}

/// What is followed at a time: bounds the memory of a pass.
const SUSPECTS: usize = 5_000;

/// Documents read at once.
const READS: usize = 500;

impl Domain {
    /// One pass of the janitor: recovers what stands unchanged for its lease, drops old partitions, and reports what is left
    /// over afterwards. Takes at least one lease if anything is found. A collection that can not be looked at is
    /// reported, and keeps nobody from looking at the others.
    ///
    /// # Errors
    /// As the store says of the domain document.
    ///
    /// # Cancel safety
    /// Dropped, what was done is done; every step stands for itself.
    pub async fn janitor_pass(&self) -> Result<Report> {
        let mut report = Report::default();
        let faults = self.engine.pass(true, &mut report).await.map_err(Stop::into_error)?;
        let look = self.engine.look(&mut report).await;
        report.add(faults);
        look.map_err(Stop::into_error)?;
        Ok(report)
    }

    /// Looks for locks, open records and lost parts, and changes nothing. What is under way at the moment shows up too.
    ///
    /// # Errors
    /// As the store says of the domain document.
    pub async fn inspect(&self) -> Result<Report> {
        let mut report = Report::default();
        self.engine.look(&mut report).await.map_err(Stop::into_error)?;
        Ok(report)
    }
}

impl Engine {
    /// One pass: decides and applies what is dead, and drops old days. A complete one refreshes the collections before
    /// it looks; the others find later what they miss now.
    #[tracing::instrument(level = "debug", skip_all, fields(domain = %self.table.domain()))]
    pub(crate) async fn pass(&self, complete: bool, report: &mut Report) -> Result<Faults, Stop> {
        let mut pass = Pass::new(self);
        let today = Day::of_unix_time(self.config.clock.wall());
        // A process whose clock is wrong neither makes days nor drops them.
        let right = self.check_clock();
        let days = if right.is_ok() { vec![today, today.plus(1)] } else { Vec::new() };
        for day in days {
            let patience = self.patience(self.config.deadline);
            if let Err(stop) = self.ensure_partition(day, &patience).await {
                pass.faults.note_place(&self.table.alias(day), stop);
            }
        }
        let Some(document) = self.document_or_fault(&mut pass.faults).await? else {
            return Ok(pass.faults);
        };
        let mut survey = Survey::new(self, &document, complete);
        let mut suspects = Vec::new();
        while let Some(page) = survey.next().await {
            suspects.extend(page);
            if suspects.len() >= SUSPECTS {
                pass.settle(std::mem::take(&mut suspects)).await;
            }
        }
        pass.settle(suspects).await;
        let dropped = match right {
            Ok(()) => {
                let patience = self.patience(self.config.deadline);
                self.drop_old_partitions(today, &mut report.partitions_dropped, &patience).await
            }
            Err(error) => Err(error.into()),
        };
        if let Err(stop) = dropped {
            pass.faults.note_place(self.table.domain(), stop);
        }
        report.recovered = pass.recovered;
        let mut faults = survey.faults;
        faults.damaged.extend(pass.faults.damaged);
        faults.unreachable.extend(pass.faults.unreachable);
        Ok(faults)
    }

    /// A complete look at what stands around and at what is lost, added to a report.
    async fn look(&self, report: &mut Report) -> Result<(), Stop> {
        let mut faults = Faults::default();
        if let Some(document) = self.document_or_fault(&mut faults).await? {
            let mut survey = Survey::new(self, &document, true);
            while let Some(page) = survey.next().await {
                for Suspect { key, holder, state } in page {
                    match state {
                        Some(state) => report.open.push((holder, state)),
                        None => report.locked.push((key, holder.to_string())),
                    }
                }
            }
            report.add(survey.faults);
            self.find_lost_parts(&document, &mut faults).await;
        }
        report.add(faults);
        Ok(())
    }

    /// The domain document; one that is lost or damaged is a fault.
    async fn document_or_fault(&self, faults: &mut Faults) -> Result<Option<DomainDocument>, Stop> {
        let patience = self.patience(self.config.deadline);
        match self.domain_document(&patience).await {
            Ok((document, ..)) => Ok(Some(document)),
            Err(Stop::Fail(error)) if faults.note(&self.table.domain_key(), &error) => Ok(None),
            Err(stop) => Err(stop),
        }
    }
}

/// What one pass does about what it finds.
struct Pass<'a> {
    engine: &'a Engine,
    recovered: usize,
    faults: Faults,
    /// Transactions that could not be decided. They are left for the next pass, so that they do not take the time of
    /// the others again and again.
    hindered: BTreeSet<Tid>,
    lifted: bool,
}

/// How it stands with a suspect.
enum Standing {
    /// As it was; `View` of the document, if it is one.
    Still(Version, Option<View>),
    Gone,
    Unknown,
}

impl<'a> Pass<'a> {
    fn new(engine: &'a Engine) -> Self {
        let (faults, hindered) = Default::default();
        Self { engine, recovered: 0, faults, hindered, lifted: false }
    }

    /// Follows suspects until each is decided, or long enough to know that its owner lives. What is not older than a
    /// lease is left alone: its owner is at it.
    async fn settle(&mut self, mut suspects: Vec<Suspect>) {
        let config = &self.engine.config;
        let until = self.engine.now() + config.transaction_limit + 2 * config.lease;
        let mut wait = config.lease;
        while !suspects.is_empty() {
            config.clock.sleep(wait).await;
            wait = config.lease / 2;
            let mut left = Vec::new();
            for some in suspects.chunks(READS) {
                let standings = self.standings(some).await;
                for (suspect, standing) in some.iter().zip(standings) {
                    if !self.is_settled(suspect, standing).await {
                        left.push(suspect.clone());
                    }
                }
            }
            suspects = left;
            self.lift_blocks().await;
            if self.engine.now() >= until {
                return;
            }
        }
    }

    /// Takes the write blocks off that a dead janitor may have left where something is hindered, once in a pass; then
    /// everybody has a second chance.
    async fn lift_blocks(&mut self) {
        if self.lifted || self.hindered.is_empty() {
            return;
        }
        self.lifted = true;
        let days = std::mem::take(&mut self.hindered).iter().map(|holder| holder.day()).collect();
        let patience = self.engine.patience(self.engine.config.deadline);
        if let Err(stop) = self.engine.lift_blocks(&days, &patience).await {
            self.faults.note_place(self.engine.table.domain(), stop);
        }
    }

    async fn standings(&mut self, suspects: &[Suspect]) -> Vec<Standing> {
        let keys: Vec<Key> = suspects.iter().map(|suspect| suspect.key.clone()).collect();
        let mut reads = self.engine.store.get_many(&keys).await.into_iter();
        let mut standings = Vec::new();
        for suspect in suspects {
            standings.push(match reads.next() {
                Some(Read::Found { version, source }) => self.standing(suspect, version, &source),
                // Where the collection is gone, the survey says so.
                Some(Read::Absent | Read::MissingCollection) => Standing::Gone,
                Some(Read::Unavailable(_)) | None => Standing::Unknown,
            });
        }
        standings
    }

    fn standing(&mut self, suspect: &Suspect, version: Version, source: &str) -> Standing {
        let key = &suspect.key;
        let seen = match suspect.state {
            Some(_) => Record::read(key, source).map(|record| (record.is_open(), None)),
            None => view(key, version, source)
                .map(|view| (view.holder() == Some(suspect.holder), Some(view))),
        };
        match seen {
            Ok((true, view)) => Standing::Still(version, view),
            Ok((false, _)) => Standing::Gone,
            Err(error) => {
                self.faults.note(key, &error);
                Standing::Gone
            }
        }
    }

    /// Decides one suspect, if it may be. Returns whether this pass is done with it.
    async fn is_settled(&mut self, suspect: &Suspect, standing: Standing) -> bool {
        let Suspect { key, holder, .. } = suspect;
        let (version, view) = match standing {
            Standing::Gone => return true,
            Standing::Unknown => return false,
            Standing::Still(..) if self.hindered.contains(holder) => return self.lifted,
            Standing::Still(version, view) => (version, view),
        };
        let engine = self.engine;
        let patience = engine.patience(engine.config.lease);
        let met = engine.meet(Requester::Patient, key, version, *holder, &patience).await;
        let done = match (met, view) {
            (Ok(Met::Busy), _) => return false,
            // A read is stale: the lock is taken off only if it still stands there.
            (Ok(Met::Void), Some(view)) => {
                engine.unlock(key, &view, *holder).await.map(|_| ()).map_err(Stop::from)
            }
            (Ok(Met::Void | Met::Applied), _) => Ok(()),
            (Err(stop), _) => Err(stop),
        };
        let error: Error = match done {
            Ok(()) => {
                self.recovered += 1;
                return true;
            }
            Err(stop) => stop.into_error(),
        };
        match error.kind() {
            ErrorKind::Conflict => false,
            ErrorKind::Unavailable => {
                self.hindered.insert(*holder);
                self.lifted
            }
            _ => {
                if !self.faults.note(key, &error) {
                    self.faults.unreachable.insert(key.to_string(), error.to_string());
                }
                true
            }
        }
    }
}
