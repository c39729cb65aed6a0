//! The registered processes in the state of a domain.

use serde_json::{Value, json};
use txn_serve::operator::ProcessList;

use super::CLOCK_MS;
use crate::answer::Message;

/// The counts of the processes, for operators.
pub(super) fn text(list: Option<&ProcessList>) -> String {
    let Some(list) = list else { return "Processes: could not be read".to_owned() };
    let silent = silent_in(list);
    let libraries = match &*list.libraries {
        [] => String::new(),
        libraries => format!("; library {}", libraries.join(", ")),
    };
    format!("Processes: {} registered, {silent} silent{libraries}", list.processes.len())
}

/// The counts of the processes, for programs.
pub(super) fn json(list: &ProcessList) -> Value {
    json!({
        "registered": list.processes.len(), "silent": silent_in(list), "libraries": list.libraries,
    })
}

fn silent_in(list: &ProcessList) -> usize {
    list.processes.iter().filter(|report| report.silent).count()
}

/// The faults of the processes: wrong clocks, and different library versions.
pub(super) fn messages(list: &ProcessList) -> Vec<Message> {
    let alive = list.processes.iter().filter(|report| !report.silent);
    let clocks = alive.filter_map(|report| {
        let entry = &report.entry;
        of_clock(&entry.process, &entry.host, entry.clock_ahead_ms?)
    });
    clocks.chain(of_libraries(&list.libraries)).collect()
}

fn of_clock(process: &str, host: &str, ahead_ms: i64) -> Option<Message> {
    let by_ms = ahead_ms.unsigned_abs();
    (by_ms > CLOCK_MS).then(|| {
        let side = if ahead_ms < 0 { "behind" } else { "ahead of" };
        let text = format!(
            "the clock of {host}, where {process} runs, is {by_ms} ms {side} the clock of the server"
        );
        let remedy = "set the clock of this machine by NTP; transactions of a machine that is far off \
                      fail";
        Message::error("process_clock_differs", text, remedy).about(process)
    })
}

fn of_libraries(libraries: &[String]) -> Option<Message> {
    (libraries.len() > 1).then(|| {
        let text =
            format!("the processes have several versions of the library: {}", libraries.join(", "));
        Message::note("libraries_differ", text, "finish the upgrade; `txn processes` names them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Severity;

    #[test]
    fn clock_of_a_process_is_a_fault_beyond_a_second() {
        assert_eq!(of_clock("till-7", "db", 1_000), None);
        for (ahead_ms, side) in [(1_001, "1001 ms ahead of"), (-3_600_000, "3600000 ms behind")] {
            let message = of_clock("till-7", "db", ahead_ms).expect("a fault");
            assert_eq!(
                (message.code, message.severity),
                ("process_clock_differs", Severity::Error)
            );
            assert!(message.text.contains(side) && message.text.contains("till-7"), "{message:?}");
        }
    }

    #[test]
    fn several_versions_of_the_library_are_noted() {
        let versions = |of: &[&str]| of.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        assert_eq!(of_libraries(&versions(&["0.1.0"])), None);
        let message = of_libraries(&versions(&["0.1.0", "0.2.0"])).expect("a note");
        assert_eq!((message.code, message.severity), ("libraries_differ", Severity::Note));
    }
}
