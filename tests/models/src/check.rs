//! Exhaustive exploration of a model: properties, and paths to the end.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash};
use std::time::{Duration, Instant};

use ahash::RandomState;
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// A state that violates a property, and the steps to it.
#[derive(Clone, Debug)]
pub struct CounterExample {
    /// The violated property.
    pub property: String,
    /// The steps, in words.
    pub steps: Vec<String>,
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Explored {
    /// The number of different states.
    pub states: usize,
    /// The length of the longest shortest path.
    pub depth: usize,
    /// Whether every state was seen.
    pub exhausted: bool,
    /// The shortest violation found, if there is one.
    pub counter_example: Option<CounterExample>,
    /// States that should occur and do not.
    pub never: Vec<&'static str>,
    /// The duration of the exploration.
    pub took: Duration,
}

impl Explored {
    /// Whether every state was seen, without a violation.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.exhausted && self.counter_example.is_none() && self.never.is_empty()
    }
}

/// Explores a model with Stateright, breadth first.
///
/// Its paths are the shortest.
#[must_use]
pub fn explore<M>(model: M) -> Explored
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Hash + Clone + PartialEq + Send + Sync + 'static,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    let began = Instant::now();
    let properties = model.properties();
    let checker =
        model.clone().checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries();
    let failed = |p: &&stateright::Property<M>| p.expectation.discovery_is_failure();
    let counter_example =
        properties.iter().filter(failed).find_map(|p| Some((p.name, found.get(p.name)?))).map(
            |(name, path)| CounterExample {
                property: name.to_owned(),
                steps: path
                    .clone()
                    .into_actions()
                    .iter()
                    .map(|action| model.format_action(action))
                    .collect(),
            },
        );
    let never = properties
        .iter()
        .filter(|p| p.expectation == Expectation::Sometimes && !found.contains_key(p.name))
        .map(|p| p.name)
        .collect();
    Explored {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        exhausted: checker.is_done() && counter_example.is_none(),
        counter_example,
        never,
        took: began.elapsed(),
    }
}

/// The states from which the end cannot be reached.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The number of different states.
    pub states: usize,
    /// The states without a path to the end, and an example.
    ///
    /// The number counts these states. The example is the shortest path to the first of these
    /// states.
    pub stuck: Option<(usize, CounterExample)>,
    /// The duration of the exploration.
    pub took: Duration,
}

/// Finds the states from which the end cannot be reached.
///
/// The function builds the whole graph and walks backwards from the end. Stateright's `eventually`
/// does not distinguish a cycle from a join of two paths, so it cannot find these states.
#[must_use]
pub fn reach_the_end<M>(model: &M, is_end: impl Fn(&M::State) -> bool) -> Reached
where
    M: Model,
    M::State: Hash,
    M::Action: std::fmt::Debug,
{
    let began = Instant::now();
    // States are hashed field by field, for which SipHash takes most of the time.
    let hasher = RandomState::with_seeds(1, 2, 3, 4);
    let mut index: HashMap<u64, u32, BuildHasherDefault<Identity>> = HashMap::default();
    // For each state: the first predecessor, and the number of its action.
    let mut from: Vec<(u32, u16)> = Vec::new();
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut ends: Vec<u32> = Vec::new();
    let mut layer: Vec<(u32, M::State)> = Vec::new();
    for state in model.init_states() {
        let id = u32::try_from(from.len()).unwrap_or(u32::MAX);
        index.insert(hasher.hash_one(&state), id);
        from.push((id, 0));
        layer.push((id, state));
    }
    let mut actions = Vec::new();
    while !layer.is_empty() {
        let mut next = Vec::new();
        for (id, state) in layer {
            if is_end(&state) {
                ends.push(id);
            }
            actions.clear();
            model.actions(&state, &mut actions);
            for (number, action) in actions.drain(..).enumerate() {
                let Some(to) = model.next_state(&state, action) else { continue };
                let fresh = u32::try_from(from.len()).unwrap_or(u32::MAX);
                let to_id = *index.entry(hasher.hash_one(&to)).or_insert(fresh);
                if to_id == fresh {
                    from.push((id, u16::try_from(number).unwrap_or(u16::MAX)));
                    next.push((fresh, to));
                }
                edges.push((to_id, id));
            }
        }
        layer = next;
    }
    let good = backwards(from.len(), &mut edges, ends);
    let bad = good.iter().filter(|good| !**good).count();
    let stuck = good.iter().position(|good| !good).map(|first| {
        let steps = retrace(model, &from, first);
        (bad, CounterExample { property: "the end can be reached".to_owned(), steps })
    });
    Reached { states: from.len(), stuck, took: began.elapsed() }
}

/// The states that lead to an end, by edges to predecessors.
fn backwards(count: usize, edges: &mut [(u32, u32)], ends: Vec<u32>) -> Vec<bool> {
    edges.sort_unstable();
    let mut good = vec![false; count];
    for end in &ends {
        good[*end as usize] = true;
    }
    let mut open = ends;
    while let Some(at) = open.pop() {
        let first = edges.partition_point(|(to, _)| *to < at);
        for (_, before) in edges[first..].iter().take_while(|(to, _)| *to == at) {
            if !good[*before as usize] {
                good[*before as usize] = true;
                open.push(*before);
            }
        }
    }
    good
}

fn retrace<M: Model>(model: &M, from: &[(u32, u16)], to: usize) -> Vec<String>
where
    M::Action: std::fmt::Debug,
{
    let mut numbers = Vec::new();
    let mut at = to;
    while from[at].0 as usize != at {
        numbers.push(from[at].1);
        at = from[at].0 as usize;
    }
    let Some(mut state) = model.init_states().into_iter().nth(at) else { return Vec::new() };
    let mut steps = Vec::new();
    for number in numbers.into_iter().rev() {
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        let action = actions.swap_remove(usize::from(number));
        steps.push(model.format_action(&action));
        let Some(next) = model.next_state(&state, action) else { break };
        state = next;
    }
    steps
}

/// A hasher that keeps the key, because the keys are hashes already.
#[derive(Clone, Copy, Default)]
struct Identity(u64);

impl std::hash::Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
