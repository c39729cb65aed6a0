//! Blocks of indices and of the cluster, parsed from errors. Pure functions.

/// Blocks by their ids, with the remedy.
///
/// A server that has just started, has no master or opens an index reports other blocks, which end
/// on their own.
const BLOCKS: &[(u32, &str)] = &[
    (5, "set index.blocks.read_only of the index to null to lift the block"),
    (6, "set cluster.blocks.read_only of the cluster to null to lift the block"),
    (7, "set index.blocks.read of the index to null to lift the block"),
    (8, "set index.blocks.write of the index to null to lift the block"),
    (9, "set index.blocks.metadata of the index to null to lift the block"),
    (
        12,
        "make room on the disk: the server then takes index.blocks.read_only_allow_delete off by itself",
    ),
    (13, "set cluster.blocks.read_only_allow_delete of the cluster to null to lift the block"),
];

/// Returns how to lift the blocks in an error.
///
/// `None` if the error names no block, or a block that ends on its own.
pub(crate) fn remedy(kind: &str, reason: Option<&str>) -> Option<String> {
    if kind != "cluster_block_exception" {
        return None;
    }
    let mut remedies: Vec<&str> = Vec::new();
    for id in ids(reason?) {
        let (_, remedy) = BLOCKS.iter().find(|(known, _)| *known == id)?;
        if !remedies.contains(remedy) {
            remedies.push(remedy);
        }
    }
    (!remedies.is_empty()).then(|| remedies.join(", and "))
}

/// Returns the ids in `blocked by: [FORBIDDEN/8/index write (api)];[…];`.
fn ids(reason: &str) -> impl Iterator<Item = u32> {
    let blocks = reason.split_once("blocked by: ").map_or("", |(_, blocks)| blocks);
    blocks.split('[').filter_map(|block| {
        let (status, rest) = block.split_once('/')?;
        let (id, _) = rest.split_once('/')?;
        let is_status = status.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        id.parse().ok().filter(|_| is_status)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy_of(kind: &str, reason: &str) -> Option<String> {
        remedy(kind, Some(reason))
    }

    #[test]
    fn block_names_what_lifts_it() {
        let flood = "index [a] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has \
                     read-only-allow-delete block];";
        for (reason, words) in [
            (
                "index [a] blocked by: [FORBIDDEN/8/index write (api)];",
                "index.blocks.write of the index",
            ),
            ("index [a] blocked by: [FORBIDDEN/7/index read (api)];", "index.blocks.read of"),
            (
                "blocked by: [FORBIDDEN/6/cluster read-only (api)];",
                "cluster.blocks.read_only of the cluster",
            ),
            (flood, "make room on the disk"),
            (
                "index [a] blocked by: [FORBIDDEN/5/x];[FORBIDDEN/8/index write (api)];",
                "null to lift the block, and set",
            ),
        ] {
            let remedy = remedy_of("cluster_block_exception", reason);
            assert!(
                remedy.as_ref().is_some_and(|text| text.contains(words)),
                "{reason}: {remedy:?}"
            );
        }
    }

    #[test]
    fn temporary_block_has_no_remedy() {
        for reason in [
            "blocked by: [SERVICE_UNAVAILABLE/1/state not recovered / initialized];",
            "index [a] blocked by: [FORBIDDEN/8/index write (api)];[SERVICE_UNAVAILABLE/2/no master];",
            "index [a] blocked by: [FORBIDDEN/4/index closed];",
            "index [[FORBIDDEN/8/x]] is gone",
            "",
        ] {
            assert_eq!(remedy_of("cluster_block_exception", reason), None, "{reason}");
        }
        let write = "index [a] blocked by: [FORBIDDEN/8/index write (api)];";
        assert_eq!(remedy_of("security_exception", write), None);
    }
}
