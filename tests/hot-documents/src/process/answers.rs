//! The handling of answers in a process.

use txn_protocol::board::{Look, Written};

use super::{Context, Process, duration};
use crate::network::{Purpose, Request};
use crate::store::{Answer, Document, Operation, Record};

impl Process {
    /// Handles the answers to a request.
    ///
    /// A request without an answer has [`Answer::None`] for each operation.
    pub fn receive(&mut self, request: &Request, cx: &mut Context<'_>) {
        let pairs = || request.operations.iter().zip(&request.answers);
        if !request.answers.iter().any(|answer| matches!(answer, Answer::None)) {
            self.policy.measure(duration(cx.now - request.sent_at));
        }
        let mut is_order_new = false;
        for (operation, answer) in pairs() {
            match (operation, answer) {
                (Operation::Read(index), Answer::Document(document)) => {
                    self.learn(*index, *document, cx.now);
                }
                (Operation::Look(_), Answer::Board(slots)) if !self.spec.is_plain => {
                    let sent_at = duration(request.sent_at);
                    let look = Look { slots: slots.clone(), sent_at };
                    self.policy.observe(look, duration(cx.now));
                    is_order_new = true;
                }
                (Operation::WriteBoard(..), answer) => {
                    let answer = match answer {
                        Answer::BoardWritten(version) => Written::At(*version),
                        Answer::Conflict => Written::Conflict,
                        _ => Written::Unknown,
                    };
                    self.policy.written(answer, duration(cx.now));
                    is_order_new = true;
                }
                _ => {}
            }
        }
        if is_order_new {
            self.forget_refused(cx.now);
        } else {
            self.forget_refused_reads(request, cx);
        }
        match request.purpose {
            Purpose::Look => {
                if request.answers.iter().any(|answer| matches!(answer, Answer::None)) {
                    self.policy.look_failed(duration(cx.now));
                }
            }
            Purpose::WriteBoard => {}
            Purpose::ReadAhead => {
                for operation in &request.operations {
                    if let Operation::Read(document) = operation {
                        self.is_reading[*document] = false;
                    }
                }
            }
            Purpose::Apply => self.applied(request, cx),
            Purpose::ReadForBatch(number) => self.lock_batch(number, cx),
            Purpose::Validate(number) => self.validate(number, request, cx),
            Purpose::Wound(number) => {
                for (operation, answer) in pairs() {
                    if let Operation::Record(holder, _) = operation {
                        self.note_decision(*holder, answer);
                    }
                }
                self.lock_batch(number, cx);
            }
            Purpose::Lock(number) => self.locks_answered(number, request, cx),
            Purpose::Record(number) => match &request.answers[0] {
                Answer::Recorded | Answer::Exists(Record::Committed(_)) => self.commit(number, cx),
                Answer::Exists(Record::Aborted) => self.abort(number, cx),
                _ => self.send(request.purpose, request.operations.clone(), cx),
            },
        }
    }

    fn forget_refused_reads(&mut self, request: &Request, cx: &Context<'_>) {
        for operation in &request.operations {
            if let Operation::Read(document) = operation
                && !self.is_busy[*document]
                && !self.may_lock(*document, cx.now)
            {
                self.cache[*document].is_fresh = false;
            }
        }
    }

    fn applied(&mut self, request: &Request, cx: &Context<'_>) {
        for (operation, answer) in request.operations.iter().zip(&request.answers) {
            let Operation::Write { document, value, .. } = operation else { continue };
            self.is_busy[*document] = false;
            match answer {
                Answer::Written(version) => {
                    let applied = Document { version: *version, lock: None, value: *value };
                    self.learn(*document, applied, cx.now);
                    if !self.may_lock(*document, cx.now) {
                        self.cache[*document].is_fresh = false;
                    }
                }
                _ => self.cache[*document].is_fresh = false,
            }
        }
    }

    fn note_decision(&mut self, holder: crate::store::Attempt, answer: &Answer) {
        let values = match answer {
            Answer::Recorded | Answer::Exists(Record::Aborted) => &[][..],
            Answer::Exists(Record::Committed(values)) => values,
            _ => return,
        };
        for (index, cached) in self.cache.iter_mut().enumerate() {
            if cached.document.lock == Some(holder) {
                let committed = values.iter().find(|(document, _)| *document == index);
                let value = committed.map_or(cached.document.value, |(_, value)| *value);
                cached.decided = Some(value);
            }
        }
    }

    fn locks_answered(&mut self, number: u64, request: &Request, cx: &mut Context<'_>) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        let (mut is_written, mut is_handed_over) = (false, false);
        for (operation, answer) in request.operations.iter().zip(&request.answers) {
            let Operation::Write { document, lock, value, .. } = operation else { continue };
            let handoff = self.handoffs.remove(document);
            let cached = &mut self.cache[*document];
            let Answer::Written(version) = answer else {
                cached.is_fresh = false;
                continue;
            };
            is_written = true;
            is_handed_over |= handoff.is_some();
            cached.document = Document { version: *version, lock: *lock, value: *value };
            (cached.is_fresh, cached.decided) = (true, None);
            if !batch.is_single {
                batch.locks.insert(*document, (*version, *value));
            }
        }
        if is_written {
            self.policy.locked(duration(cx.now));
        }
        if is_handed_over && !self.spec.is_plain {
            self.policy.handed_over(duration(cx.now));
        }
        if batch.is_single {
            self.single_written(number, is_written, cx);
        } else {
            self.sort_out(number, cx);
        }
    }
}
