//! The refusals, breakers and memory of a node.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// The maximum time until a node returns its figures.
const ANSWER: Duration = Duration::from_secs(2);

/// Counters of the node, by their paths in its figures.
const COUNTERS: [(&str, &str); 10] = [
    ("server: trips of the breaker `parent`", "/breakers/parent/tripped"),
    ("server: trips of the breaker `request`", "/breakers/request/tripped"),
    ("server: trips of the breaker `inflight_requests`", "/breakers/in_flight_requests/tripped"),
    ("server: bulks refused by coordinator", REFUSED_BY_COORDINATOR),
    ("server: bulks refused by primary", "/indexing_pressure/memory/total/primary_rejections"),
    ("server: tasks refused by `write`", "/thread_pool/write/rejected"),
    ("server: tasks refused by `get`", "/thread_pool/get/rejected"),
    ("server: tasks refused by `search`", "/thread_pool/search/rejected"),
    (OLD_COLLECTIONS, "/jvm/gc/collectors/old/collection_count"),
    ("server: young collections", "/jvm/gc/collectors/young/collection_count"),
];

const REFUSED_BY_COORDINATOR: &str = "/indexing_pressure/memory/total/coordinating_rejections";
const OLD_COLLECTIONS: &str = "server: old collections";

/// The times of the collectors, in milliseconds.
const COLLECTOR_TIMES: [&str; 2] = [
    "/jvm/gc/collectors/old/collection_time_in_millis",
    "/jvm/gc/collectors/young/collection_time_in_millis",
];

/// A counter that begins again at zero when the node restarts.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    last: u64,
    sum: u64,
}

impl Counter {
    /// Adds a reading, and returns the increase.
    fn read(&mut self, value: u64) -> u64 {
        let more = value.checked_sub(self.last).unwrap_or(value);
        self.last = value;
        self.sum += more;
        more
    }
}

/// The figures of a node over its restarts.
#[derive(Debug)]
pub(super) struct Figures {
    http: reqwest::Client,
    url: String,
    counters: BTreeMap<&'static str, Counter>,
    collector_time: Counter,
    longest_collection: u64,
    most_heap_percent: u64,
    readings: u64,
    without_answer: u64,
}

impl Figures {
    pub(super) fn new(url: &str) -> Result<Self, String> {
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER).build();
        Ok(Self {
            http: http.map_err(|error| error.to_string())?,
            url: format!("{url}/_nodes/stats/breaker,indexing_pressure,thread_pool,jvm"),
            counters: BTreeMap::new(),
            collector_time: Counter::default(),
            longest_collection: 0,
            most_heap_percent: 0,
            readings: 0,
            without_answer: 0,
        })
    }

    /// Reads the figures once.
    pub(super) async fn read(&mut self) {
        self.readings += 1;
        match self.ask().await {
            Some(node) => self.add(&node),
            None => self.without_answer += 1,
        }
    }

    /// Waits until the node returns its figures.
    pub(super) async fn until_answered(&self) {
        while self.ask().await.is_none() {
            tokio::time::sleep(ANSWER).await;
        }
    }

    async fn ask(&self) -> Option<Value> {
        let answer = self.http.get(&self.url).send().await.ok()?;
        let answer: Value = answer.error_for_status().ok()?.json().await.ok()?;
        answer["nodes"].as_object()?.values().next().cloned()
    }

    fn add(&mut self, node: &Value) {
        let number = |path: &str| node.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        for (what, path) in COUNTERS {
            self.counters.entry(what).or_default().read(number(path));
        }
        let collecting = COLLECTOR_TIMES.into_iter().map(number).sum();
        let more = self.collector_time.read(collecting);
        self.longest_collection = self.longest_collection.max(more);
        let heap = number("/jvm/mem/heap_used_percent");
        self.most_heap_percent = self.most_heap_percent.max(heap);
    }

    pub(super) fn lines(&self) -> Vec<(String, u64)> {
        let counters = COUNTERS.into_iter().map(|(what, _)| {
            (what.to_owned(), self.counters.get(what).map_or(0, |counter| counter.sum))
        });
        let others = [
            ("server: ms of all collections", self.collector_time.sum),
            ("server: longest collections between readings, ms", self.longest_collection),
            ("server: % of its heap, at most", self.most_heap_percent),
            ("server: readings", self.readings),
            ("server: readings without an answer", self.without_answer),
        ];
        counters.chain(others.into_iter().map(|(what, count)| (what.to_owned(), count))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_survive_restarts() {
        let mut counter = Counter::default();
        assert_eq!([3, 5, 2, 2].map(|value| counter.read(value)), [3, 2, 2, 0]);
        assert_eq!(counter.sum, 7);
    }
}
