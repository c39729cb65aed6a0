//! Findings about the disks of the nodes. Pure functions.

use serde_json::{Map, Value};

use super::super::message::Message;
use super::facts::Facts;

const DISK: &str = "cluster.routing.allocation.disk";

/// Compares free disk space with the watermarks of the servers.
///
/// The free space is that of each data node.
pub(super) fn disks(facts: &Facts) -> Vec<Message> {
    if facts.setting(&format!("{DISK}.threshold_enabled")) == Some("false") {
        return Vec::new();
    }
    let nodes = facts.stats["nodes"].as_object().into_iter().flatten();
    let disks: Vec<Disk<'_>> = nodes.filter_map(|(id, node)| Disk::of(id, node)).collect();
    let is_below = |disk: &Disk<'_>, watermark: &str| {
        let name = format!("{DISK}.watermark.{watermark}");
        let headroom = facts.setting(&format!("{name}.max_headroom")).and_then(bytes);
        let least = facts.setting(&name).and_then(|value| free(value, disk.total, headroom));
        least.is_some_and(|least| disk.free < least)
    };
    let mut found: Vec<Message> = disks
        .iter()
        .filter(|disk| is_below(disk, "flood_stage"))
        .map(|disk| {
            let text = format!(
                "the disk of the node {} is full ({} of {} bytes are free): the server blocks writes",
                disk.node, disk.free, disk.total
            );
            let remedy = "delete data, or add disk space; the server then lifts the block by itself";
            Message::error("disk_full", text, remedy).about(disk.node)
        })
        .collect();
    let are_ignored = match &*disks {
        [] => true,
        // Some servers ignore these watermarks on a single data node.
        [_] => {
            facts.setting(&format!("{DISK}.watermark.enable_for_single_data_node")) == Some("false")
        }
        _ => false,
    };
    if !found.is_empty() || are_ignored {
        return found;
    }
    let remedy = "delete data, add disk space, or add a node";
    let are_below = |watermark: &str| disks.iter().all(|disk| is_below(disk, watermark));
    if are_below("high") {
        let text =
            "the disk of each data node is above the high watermark: no node takes a new partition";
        found.push(Message::error("disk_high", text, remedy));
    } else if are_below("low") {
        let text = "the disk of each data node is above the low watermark: no node takes replicas \
                    of new partitions; above the high watermark no node takes the partitions \
                    themselves";
        found.push(Message::note("disk_low", text, remedy));
    }
    found
}

/// The disk of a data node, in bytes.
struct Disk<'a> {
    node: &'a str,
    free: u64,
    total: u64,
}

impl<'a> Disk<'a> {
    fn of(id: &'a str, node: &'a Value) -> Option<Self> {
        let is_data = |role: &Value| {
            role.as_str().is_some_and(|role| role == "data" || role.starts_with("data_"))
        };
        // Old servers do not tell roles.
        let roles = node["roles"].as_array();
        if roles.is_some_and(|roles| !roles.iter().any(is_data)) {
            return None;
        }
        let total: &Map<String, Value> = node["fs"]["total"].as_object()?;
        Some(Self {
            node: node["name"].as_str().unwrap_or(id),
            free: total.get("available_in_bytes")?.as_u64()?,
            total: total.get("total_in_bytes")?.as_u64()?,
        })
    }
}

/// Returns the free bytes that a watermark asks for.
///
/// A watermark is a share of used space (`85%`, `0.85`), or a size of free space (`10gb`).
fn free(watermark: &str, total: u64, headroom: Option<u64>) -> Option<u64> {
    let percent = |text: &str| text.trim().parse::<f64>().ok();
    let used = match watermark.strip_suffix('%') {
        Some(share) => percent(share)? / 100.0,
        None => match percent(watermark).filter(|share| (0.0..=1.0).contains(share)) {
            Some(share) => share,
            None => return bytes(watermark),
        },
    };
    // The rounding of a size in bytes does not matter.
    let free = ((1.0 - used.clamp(0.0, 1.0)) * total as f64) as u64;
    Some(headroom.map_or(free, |most| free.min(most)))
}

/// Reads a size such as `10gb`. A negative number means that there is none.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let factor: u64 = match &text[digits..] {
        "b" | "" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        "t" | "tb" => 1 << 40,
        "p" | "pb" => 1 << 50,
        _ => return None,
    };
    Some((number * factor as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_are_shares_and_sizes() {
        for (watermark, headroom, expected) in [
            ("85%", None, Some(150)),
            ("0.95", None, Some(50)),
            ("85%", Some(100), Some(100)),
            ("10b", None, Some(10)),
            ("1kb", Some(1), Some(1_024)),
            ("odd", None, None),
        ] {
            let free = free(watermark, 1_000, headroom);
            assert!(
                free.map_or(expected.is_none(), |free| expected
                    .is_some_and(|e| free.abs_diff(e) < 2)),
                "{watermark}: {free:?}"
            );
        }
        assert_eq!((bytes("-1"), bytes("1.5gb")), (None, Some(3 << 29)));
    }
}
