//! Links that are cut, as rules of `nft`.

use std::fmt::{self, Write as _};

/// An end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Port {
    /// A node, counted from 0.
    Node(usize),
    /// A client, counted from 0.
    Client(usize),
}

impl fmt::Display for Port {
    /// Writes the name of the port at the bridge.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(number) => write!(f, "node-{}", number + 1),
            Self::Client(number) => write!(f, "client-{}", number + 1),
        }
    }
}

/// One direction between two ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link {
    /// The sender.
    pub from: Port,
    /// The receiver.
    pub to: Port,
}

impl Link {
    /// Returns both directions between each pair of ports.
    ///
    /// A pair has one port of each side.
    #[must_use]
    pub fn between(one: &[Port], other: &[Port]) -> Vec<Self> {
        let to = Self::towards(one, other);
        let back = to.iter().map(|link| Self { from: link.to, to: link.from });
        to.iter().copied().chain(back).collect()
    }

    /// Returns the direction from `from` to `to` for each pair.
    ///
    /// A pair has one port of each side.
    #[must_use]
    pub fn towards(from: &[Port], to: &[Port]) -> Vec<Self> {
        let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to)));
        pairs.map(|(from, to)| Self { from, to }).collect()
    }
}

/// The share of the packets that a link loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// All packets.
    All,
    /// This many of a hundred packets. The kernel draws them at random.
    Percent(u8),
}

/// Returns rules that replace all rules in one `nft` transaction.
///
/// Earlier rules are removed.
///
/// Address resolution passes. Without answers of the address resolution, a cut of one direction
/// would also cut the other one.
pub(super) fn rules(links: &[Link], loss: Loss) -> String {
    // A table can only be deleted if it exists.
    let mut text = "add table bridge txn\ndelete table bridge txn\n".to_owned();
    if links.is_empty() {
        return text;
    }
    text += "table bridge txn {\nchain cuts {\ntype filter hook forward priority 0;\n";
    let lost = match loss {
        Loss::All => String::new(),
        Loss::Percent(percent) => format!("numgen random mod 100 < {percent} "),
    };
    for Link { from, to } in links {
        let _ = writeln!(text, "iifname \"{from}\" oifname \"{to}\" ether type ip {lost}drop");
    }
    text += "}\n}\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_has_one_rule_per_direction() {
        let links = Link::between(&[Port::Node(0)], &[Port::Node(1), Port::Client(0)]);
        let rules = rules(&links, Loss::All);
        let drops: Vec<&str> = rules.lines().filter(|line| line.ends_with("drop")).collect();
        assert_eq!(
            drops,
            [
                "iifname \"node-1\" oifname \"node-2\" ether type ip drop",
                "iifname \"node-1\" oifname \"client-1\" ether type ip drop",
                "iifname \"node-2\" oifname \"node-1\" ether type ip drop",
                "iifname \"client-1\" oifname \"node-1\" ether type ip drop",
            ]
        );
    }

    #[test]
    fn one_direction_leaves_the_other_open() {
        let links = Link::towards(&[Port::Node(2)], &[Port::Node(0), Port::Node(1)]);
        let rules = rules(&links, Loss::All);
        assert!(rules.contains("iifname \"node-3\" oifname \"node-1\""), "{rules}");
        assert!(!rules.contains("iifname \"node-1\""), "{rules}");
    }

    #[test]
    fn lossy_link_drops_some_packets() {
        let links = Link::towards(&[Port::Node(0)], &[Port::Node(1)]);
        let rules = rules(&links, Loss::Percent(20));
        let drop =
            "iifname \"node-1\" oifname \"node-2\" ether type ip numgen random mod 100 < 20 drop";
        assert!(rules.contains(drop), "{rules}");
    }

    #[test]
    fn no_cut_removes_the_table() {
        assert_eq!(rules(&[], Loss::All), "add table bridge txn\ndelete table bridge txn\n");
    }
}
