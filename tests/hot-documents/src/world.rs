//! The simulation: its events in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use txn_protocol::board::Numbers;

use crate::measure::{Measures, Outcome};
use crate::network::{Capacity, Request, Sending, Server, one_way};
use crate::process::{Context, EngineNumbers, Process};
use crate::random::Random;
use crate::store::{Answer, BoardFaults, Micros, Store, millis};
use crate::workload::{Arrivals, Documents, Kind, ProcessSpec, Sale, Transaction};

/// A fault at a time after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies.
    Kill(usize),
    /// The process that holds a lock dies, unless it is this one.
    KillHolderExcept(usize),
    /// The process does nothing for this time.
    Pause(usize, Micros),
    /// The board is emptied.
    WipeBoard,
}

/// All parameters of a run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The documents.
    pub documents: Documents,
    /// The processes.
    pub processes: Vec<ProcessSpec>,
    /// The measured time after the warm-up of one second.
    pub seconds: u64,
    /// The seed.
    pub seed: u64,
    /// The server.
    pub capacity: Capacity,
    /// The share of lost requests. Half of these requests are lost before their execution.
    pub loss: f64,
    /// The behaviour of the board. Times count from the start of the run.
    pub board: BoardFaults,
    /// The faults.
    pub faults: Vec<(Micros, Fault)>,
    /// Numbers of the engine.
    pub engine: EngineNumbers,
    /// Numbers of the policy.
    pub policy: Numbers,
}

impl Setting {
    /// Creates a setting with ten documents and ten seconds, without faults.
    #[must_use]
    pub fn new(processes: Vec<ProcessSpec>) -> Self {
        Self {
            documents: Documents::Uniform { number: 10 },
            processes,
            seconds: 10,
            seed: 1,
            capacity: Capacity::default(),
            loss: 0.0,
            board: BoardFaults::default(),
            faults: Vec::new(),
            engine: EngineNumbers::default(),
            policy: Numbers::default(),
        }
    }
}

/// The time before the measurement.
pub const WARM_UP: Micros = millis(1_000);

enum Event {
    Arrive(usize),
    Execute(usize, usize),
    Answer(usize),
    GiveUp(usize),
    Wake(usize),
    Client(usize, usize),
    Arrival(usize),
    Handle(usize, usize),
    Fault(Fault),
}

struct World<'a> {
    setting: &'a Setting,
    now: Micros,
    random: Random,
    queue: BinaryHeap<Reverse<(Micros, u64, usize)>>,
    events: Vec<Option<Event>>,
    free_events: Vec<usize>,
    sequence: u64,
    store: Store,
    server: Server,
    requests: Vec<Option<Request>>,
    free_requests: Vec<usize>,
    processes: Vec<Process>,
    is_alive: Vec<bool>,
    woken_at: Vec<Micros>,
    measures: Measures,
}

/// Runs a setting.
#[must_use]
pub fn run(setting: &Setting) -> Outcome {
    let mut world = World::new(setting);
    world.run();
    world.outcome()
}

impl<'a> World<'a> {
    fn new(setting: &'a Setting) -> Self {
        let documents = setting.documents.number();
        let process = |(index, spec): (usize, &ProcessSpec)| {
            Process::new(index, spec.clone(), documents, setting.engine, setting.policy)
        };
        let processes: Vec<Process> = setting.processes.iter().enumerate().map(process).collect();
        let mut world = Self {
            setting,
            now: 0,
            random: Random::new(setting.seed),
            queue: BinaryHeap::new(),
            events: Vec::new(),
            free_events: Vec::new(),
            sequence: 0,
            store: Store::new(documents, setting.board.clone()),
            server: Server::new(setting.capacity),
            requests: Vec::new(),
            free_requests: Vec::new(),
            is_alive: vec![true; processes.len()],
            woken_at: vec![Micros::MAX; processes.len()],
            measures: Measures::new(processes.len()),
            processes,
        };
        for (index, spec) in setting.processes.iter().enumerate() {
            match spec.arrivals {
                Arrivals::Closed { .. } => {
                    for client in 0..spec.clients {
                        let at = world.random.below(millis(5)) + millis(10);
                        world.at(at, Event::Client(index, client));
                    }
                }
                Arrivals::Poisson(_) => world.at(millis(10), Event::Arrival(index)),
            }
        }
        for (at, fault) in &setting.faults {
            world.at(WARM_UP + at, Event::Fault(*fault));
        }
        world
    }

    fn at(&mut self, at: Micros, event: Event) {
        let slot = self.free_events.pop().unwrap_or(self.events.len());
        if slot == self.events.len() {
            self.events.push(Some(event));
        } else {
            self.events[slot] = Some(event);
        }
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, slot)));
    }

    fn run(&mut self) {
        let end = WARM_UP + self.setting.seconds * millis(1_000);
        while let Some(Reverse((at, _, slot))) = self.queue.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.free_events.push(slot);
            let Some(event) = self.events[slot].take() else { continue };
            self.happen(event);
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(id) => self.arrive(id),
            Event::Execute(id, operation) => self.execute(id, operation),
            Event::Answer(id) | Event::GiveUp(id) => {
                let is_lost = matches!(event, Event::GiveUp(_));
                self.answer(id, is_lost);
            }
            Event::Wake(process) => {
                if self.woken_at[process] == self.now {
                    self.woken_at[process] = Micros::MAX;
                    let paused_until = self.processes[process].paused_until;
                    self.processes[process].wake_at = Micros::MAX;
                    if paused_until > self.now {
                        self.processes[process].wake_at = paused_until;
                    }
                    self.with(process, Process::step);
                }
            }
            Event::Client(process, client) => self.start(process, Some(client)),
            Event::Arrival(process) => {
                if let Arrivals::Poisson(rate) = self.setting.processes[process].arrivals {
                    let at = self.now + self.random.interval(rate);
                    self.at(at, Event::Arrival(process));
                }
                self.start(process, None);
            }
            Event::Handle(process, shard) => {
                if self.is_alive[process] {
                    let transaction = self.transaction(process, vec![shard], None, Kind::Write);
                    self.with(process, |process, cx| process.start(transaction, cx));
                }
            }
            Event::Fault(fault) => self.fail(fault),
        }
    }

    fn fail(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(process) => self.is_alive[process] = false,
            Fault::KillHolderExcept(kept) => match self.store.holder() {
                Some(holder) if holder != kept && self.is_alive[holder] => {
                    self.is_alive[holder] = false;
                }
                _ => self.at(self.now + 500, Event::Fault(fault)),
            },
            Fault::Pause(process, time) => self.processes[process].paused_until = self.now + time,
            Fault::WipeBoard => self.store.wipe_board(self.now),
        }
    }

    fn transaction(
        &mut self,
        process: usize,
        documents: Vec<usize>,
        client: Option<usize>,
        kind: Kind,
    ) -> Transaction {
        let error = self.setting.processes[process].clock_error;
        if matches!(kind, Kind::Write | Kind::SingleWrite) {
            self.measures.started_increments += documents.len() as i64;
        }
        Transaction {
            age: self.now.saturating_add_signed(error),
            started_at: self.now,
            documents,
            client,
            kind,
            passed_over_since: None,
        }
    }

    fn start(&mut self, process: usize, client: Option<usize>) {
        if !self.is_alive[process] {
            return;
        }
        let spec = &self.setting.processes[process];
        let kind = if self.random.chance(spec.share) { spec.kind } else { Kind::Write };
        let mut none = Sale::default();
        let sale = client.and_then(|client| self.processes[process].sales.get_mut(client));
        let sale = sale.unwrap_or(&mut none);
        let mut documents = self.setting.documents.choose(spec, sale, &mut self.random);
        if kind == Kind::SingleWrite {
            documents.truncate(1);
        }
        let transaction = self.transaction(process, documents, client, kind);
        self.with(process, |process, cx| process.start(transaction, cx));
    }

    /// Lets a process act, and carries out its effects.
    fn with(&mut self, index: usize, act: impl FnOnce(&mut Process, &mut Context<'_>)) {
        if !self.is_alive[index] {
            return;
        }
        let now = self.now;
        let heartbeats: Vec<bool> = self
            .is_alive
            .iter()
            .zip(&self.processes)
            .map(|(is_alive, process)| *is_alive && process.paused_until <= now)
            .collect();
        let mut cx = Context {
            now,
            random: &mut self.random,
            is_alive: &heartbeats,
            sent: Vec::new(),
            next: Vec::new(),
            committed: Vec::new(),
        };
        let process = &mut self.processes[index];
        act(process, &mut cx);
        let Context { sent, next, committed, .. } = cx;
        for sending in sent {
            self.send(index, sending);
        }
        for (at, client) in next {
            self.at(at, Event::Client(index, client));
        }
        for transaction in committed {
            self.measures.commit(index, &transaction, now, now > WARM_UP);
            self.handle_outbox(index, &transaction);
        }
        let wake_at = self.processes[index].wake_at.max(now + 1);
        if wake_at < self.woken_at[index] && wake_at < Micros::MAX {
            self.woken_at[index] = wake_at;
            self.at(wake_at, Event::Wake(index));
        }
    }

    /// Handles an outbox entry, if the transaction wrote one.
    ///
    /// Another process may own the shard, and handles the entry 5 ms later. The own process takes
    /// 0.5 ms.
    fn handle_outbox(&mut self, process: usize, transaction: &Transaction) {
        if transaction.client.is_none() {
            return;
        }
        let is_shard = |document: &&usize| self.setting.documents.is_shard(**document);
        let Some(shard) = transaction.documents.iter().find(is_shard).copied() else { return };
        let owner = shard % self.processes.len();
        let delay = if owner == process { 500 } else { millis(5) };
        self.at(self.now + delay, Event::Handle(owner, shard));
    }

    fn send(&mut self, process: usize, sending: Sending) {
        self.measures.send(&sending, self.now > WARM_UP);
        let open = sending.operations.len();
        let request = Request {
            process,
            purpose: sending.purpose,
            answers: vec![Answer::None; open],
            operations: sending.operations,
            open,
            sent_at: self.now,
            is_done: false,
        };
        let id = self.free_requests.pop().unwrap_or(self.requests.len());
        if id == self.requests.len() {
            self.requests.push(Some(request));
        } else {
            self.requests[id] = Some(request);
        }
        let round_trip = self.setting.processes[process].round_trip;
        let arrival = self.now + one_way(&mut self.random, round_trip);
        if !self.random.chance(self.setting.loss / 2.0) {
            self.at(arrival, Event::Arrive(id));
        }
        if self.setting.loss > 0.0 {
            let at = self.now + millis(50) + 4 * round_trip;
            self.at(at, Event::GiveUp(id));
        }
    }

    fn arrive(&mut self, id: usize) {
        let Some(request) = &self.requests[id] else { return };
        let executed_at = self.server.execute_at(self.now, &request.operations);
        for operation in 0..request.operations.len() {
            let at = executed_at + self.random.below(100);
            self.at(at, Event::Execute(id, operation));
        }
    }

    fn execute(&mut self, id: usize, index: usize) {
        let Some(request) = &mut self.requests[id] else { return };
        let operation = request.operations[index].clone();
        request.answers[index] = self.store.execute(self.now, operation);
        request.open -= 1;
        if request.open > 0 {
            return;
        }
        let round_trip = self.setting.processes[request.process].round_trip;
        let at = self.now + one_way(&mut self.random, round_trip);
        if !self.random.chance(self.setting.loss / 2.0) {
            self.at(at, Event::Answer(id));
        }
    }

    fn answer(&mut self, id: usize, is_lost: bool) {
        let Some(request) = &mut self.requests[id] else { return };
        let process = request.process;
        let paused_until = self.processes[process].paused_until;
        if paused_until > self.now && self.is_alive[process] && !is_lost {
            self.at(paused_until, Event::Answer(id));
            return;
        }
        if std::mem::replace(&mut request.is_done, true) {
            return;
        }
        let mut request = if self.setting.loss > 0.0 {
            request.clone()
        } else {
            self.free_requests.push(id);
            let Some(request) = self.requests[id].take() else { return };
            request
        };
        if is_lost {
            request.answers.fill(Answer::None);
        }
        self.with(process, |process, cx| {
            process.receive(&request, cx);
            process.step(cx);
            process.note_waits(cx.now);
        });
    }

    fn outcome(mut self) -> Outcome {
        let total = self.store.total();
        for process in &self.processes {
            if self.is_alive[process.index] {
                let oldest = process.oldest_start();
                self.measures.note_open(process.index, oldest, self.now);
            }
            self.measures.waits_with_locks += process.waits_with_locks;
            self.measures.batches.0 += process.batch_sizes.0;
            self.measures.batches.1 += process.batch_sizes.1;
        }
        self.measures.outcome(self.setting.seconds, total)
    }
}
