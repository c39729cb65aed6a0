//! Tables of results.

use crate::measure::Outcome;
use crate::scenario::{
    Beside, by_itself, equal, faults, least, mean, most, open, plain, read_only, runs, server,
    shop, single_writes,
};
use crate::workload::{Documents, Kind, ProcessSpec};
use crate::world::Setting;

/// The seeds and the common setting of a report.
///
/// Each scenario starts from this setting.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seeds.
    pub seeds: Vec<u64>,
}

const HEADER: &str = "| scenario | processes | commits/s | of one process | share | p99 ms | p99 of one | longest ms | \
                      writes/commit | board looks/s | board writes/s |";

impl Report {
    /// Equal processes on ten documents.
    pub fn table(&self) {
        header(HEADER);
        for clients in [2, 4, 8, 32] {
            let spec = ProcessSpec::new(1, clients);
            self.scale(&format!("{clients} clients each"), &Setting::new(vec![]), &spec, true);
        }
    }

    /// The shop.
    pub fn shop(&self) {
        header(HEADER);
        for is_popular in [false, true] {
            let name = if is_popular { "shop, one popular event" } else { "shop" };
            let spec = ProcessSpec::new(1, 100);
            self.compare(name, &shop(is_popular), &spec, &[2, 4], false);
        }
    }

    /// A server with a capacity that the processes share.
    pub fn server(&self) {
        header(HEADER);
        for (round_trip, workers, clients) in
            [(1, 8, 8), (1, 1, 8), (3, 4, 32), (5, 4, 8), (15, 4, 32)]
        {
            let name = format!("{round_trip} ms, {workers} workers, {clients} clients each");
            let spec = ProcessSpec::new(round_trip, clients);
            self.scale(&name, &server(workers), &spec, false);
        }
        for round_trip in [3, 15] {
            let spec = ProcessSpec::new(round_trip, 100);
            let setting = Setting { capacity: server(4).capacity, ..shop(false) };
            let name = format!("shop, {round_trip} ms, 4 workers");
            self.compare(&name, &setting, &spec, &[2, 4], false);
        }
    }

    /// One-document writes, read-only transactions and transactions that are not merged.
    pub fn kinds(&self) {
        header(HEADER);
        let base = Setting::new(vec![]);
        let half = |kind: Kind| ProcessSpec { kind, share: 0.5, ..ProcessSpec::new(1, 8) };
        for (name, spec) in [
            ("one-document writes", single_writes(8)),
            ("half one-document writes", half(Kind::SingleWrite)),
            ("half read-only", half(Kind::ReadOnly)),
            ("not merged", by_itself(8)),
        ] {
            self.scale(name, &base, &spec, false);
        }
    }

    /// Sets of more than a thousand documents.
    pub fn wide(&self) {
        header(HEADER);
        let documents = Documents::Wide { number: 5_000, cold: 40 };
        let setting = Setting { documents, seconds: 3, ..Setting::new(vec![]) };
        self.compare(
            "40 cold documents each",
            &setting,
            &ProcessSpec::new(1, 32),
            &[2, 4, 8],
            false,
        );
    }

    /// Documents that share hashes.
    pub fn collisions(&self) {
        header(HEADER);
        for bits in [1, 2, 3, 32] {
            let mut setting = Setting::new(vec![]);
            setting.documents = Documents::Uniform { number: 40 };
            setting.engine.hash_bits = bits;
            let spec = ProcessSpec::new(1, 8);
            self.compare(&format!("40 documents, {bits} bits"), &setting, &spec, &[4], false);
        }
    }

    /// Transactions that arrive at a rate.
    ///
    /// The rate is a share of what one process commits.
    pub fn open(&self) {
        println!(
            "| arrivals/s in all | processes | commits/s | p99 ms | p99 of one | longest ms |"
        );
        println!("|---|---|---|---|---|---|");
        for rate in [500.0, 2_000.0, 8_000.0] {
            let one = runs(&Setting::new(vec![open(rate)]), &self.seeds);
            for processes in [2, 4, 8, 16] {
                let spec = open(rate / processes as f64);
                let all = runs(&Setting::new(vec![spec; processes]), &self.seeds);
                println!(
                    "| {rate} | {processes} | {:.0} | {:.1} | {:.1} | {:.0} |",
                    mean(&all, Outcome::total),
                    mean(&all, Outcome::worst_p99),
                    mean(&one, Outcome::worst_p99),
                    most(&all, Outcome::worst),
                );
            }
        }
    }

    /// A lone client and read-only transactions, together with busy processes.
    pub fn lone(&self) {
        beside_header();
        for (name, guest) in [
            ("lone client", ProcessSpec::new(1, 1)),
            ("read-only client", read_only(1)),
            ("4 clients, not merged", by_itself(4)),
            ("one-document writes, 4 clients", single_writes(4)),
        ] {
            for busy in [1, 4] {
                self.beside(name, Beside::new(vec![guest.clone()], busy, 20));
            }
        }
    }

    /// Processes with long round trips, together with busy ones.
    pub fn slow(&self) {
        beside_header();
        let slow = ProcessSpec::new(300, 1);
        for (name, guests) in [("slow", vec![slow.clone()]), ("two slow", vec![slow.clone(), slow])]
        {
            for busy in [1, 4] {
                self.beside(name, Beside::new(guests.clone(), busy, 60));
            }
        }
    }

    /// Faults.
    pub fn faults(&self) {
        println!("| fault | of the run without | share | p99 ms | longest ms |");
        println!("|---|---|---|---|---|");
        let base = runs(&Setting::new(vec![ProcessSpec::new(1, 8); 4]), &self.seeds);
        let base = mean(&base, Outcome::total);
        for (name, setting) in faults() {
            let all = runs(&setting, &self.seeds);
            println!(
                "| {name} | {:.2} | {:.2} | {:.0} | {:.0} |",
                mean(&all, Outcome::total) / base,
                least(&all, Outcome::share),
                mean(&all, Outcome::worst_p99),
                most(&all, Outcome::worst),
            );
        }
    }

    fn scale(&self, name: &str, setting: &Setting, spec: &ProcessSpec, with_plain: bool) {
        self.compare(name, setting, spec, &[2, 4, 8, 16], with_plain);
    }

    fn compare(
        &self,
        name: &str,
        setting: &Setting,
        spec: &ProcessSpec,
        counts: &[usize],
        with_plain: bool,
    ) {
        let one = runs(&equal(setting, spec, 1), &self.seeds);
        for count in counts {
            let setting = equal(setting, spec, *count);
            row(name, *count, &runs(&setting, &self.seeds), &one);
            if with_plain && *count == 4 {
                let name = format!("{name}, without the board");
                row(&name, *count, &runs(&plain(&setting), &self.seeds), &one);
            }
        }
    }

    fn beside(&self, name: &str, beside: Beside) {
        let busy = beside.busy.len();
        let measured = beside.measure(&self.seeds);
        println!(
            "| {name} | {busy} | {:.1}/{:.1} | {:.1}/{:.1} | {:.1} | {:.1} | {:.0} | {:.2} |",
            measured.alone_median,
            measured.alone_p99,
            measured.median,
            measured.p99,
            measured.median / measured.alone_median,
            measured.p99 / measured.alone_p99,
            measured.longest,
            measured.busy_keep,
        );
    }
}

fn header(header: &str) {
    println!("{header}");
    println!("|{}", "---|".repeat(header.matches('|').count() - 1));
}

fn beside_header() {
    header(
        "| guest | busy processes | alone median/p99 ms | median/p99 ms | median ratio | p99 ratio | longest ms | busy keep |",
    );
}

fn row(name: &str, processes: usize, all: &[Outcome], one: &[Outcome]) {
    println!(
        "| {name} | {processes} | {:.0} | {:.3} | {:.2} | {:.1} | {:.1} | {:.0} | {:.2} | {:.0} | {:.0} |",
        mean(all, Outcome::total),
        mean(all, Outcome::total) / mean(one, Outcome::total),
        least(all, Outcome::share),
        mean(all, Outcome::worst_p99),
        mean(one, Outcome::worst_p99),
        most(all, Outcome::worst),
        mean(all, |outcome| outcome.writes),
        mean(all, |outcome| outcome.board_looks),
        mean(all, |outcome| outcome.board_writes),
    );
}
