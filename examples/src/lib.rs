//! Examples of transactions: each file in `examples/` is a program.
//!
//! This library has no code. The library makes the code blocks of the repository's documents part
//! of the tests, so that no code block becomes outdated.

macro_rules! documents {
    ($($name:ident: $path:literal;)*) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!($path)]
            mod $name {}
        )*
    };
}

documents! {
    readme: "../../README.md";
    contributing: "../../CONTRIBUTING.md";
    start: "../../docs/start.md";
    existing_index: "../../docs/existing-index.md";
    choosing: "../../docs/choosing.md";
    unknown: "../../docs/unknown.md";
    testing_your_code: "../../docs/testing-your-code.md";
    past: "../../docs/past.md";
    failures: "../../docs/failures.md";
    architecture: "../../ARCHITECTURE.md";
    protocol: "../../docs/protocol.md";
    store_contract: "../../docs/store-contract.md";
    isolation: "../../docs/isolation.md";
    operations: "../../docs/operations.md";
    testing: "../../docs/testing.md";
    core: "../../crates/txn-core/README.md";
    es: "../../crates/txn-es/README.md";
    redb: "../../crates/txn-redb/README.md";
    store: "../../crates/txn-store/README.md";
    sim: "../../crates/txn-sim/README.md";
    testkit: "../../crates/txn-testkit/README.md";
    metrics: "../../crates/txn-metrics/README.md";
}

#[cfg(test)]
mod tests {
    const EXAMPLE: &str = include_str!("../examples/order.rs");

    #[test]
    fn start_page_shows_the_order_example() {
        let (shown, _test) = EXAMPLE.split_once("\n#[test]").expect("the test at its end");
        let (_about, shown) = shown.split_once("\n\n").expect("the comment at its beginning");
        assert!(include_str!("../../docs/start.md").contains(&format!("```rust\n{shown}```\n")));
    }

    #[test]
    fn operations_page_has_every_metric() {
        let page = include_str!("../../docs/operations.md");
        for figure in txn_metrics::figures::FIGURES {
            let kind = format!("{:?}", figure.kind).to_lowercase();
            let unit = if figure.unit == metrics::Unit::Seconds { ", seconds" } else { "" };
            let labels: Vec<String> =
                figure.labels.iter().map(|(label, _)| format!("`{label}`")).collect();
            let label = labels.join(", ");
            let row =
                format!("| `{}` | {kind}{unit} | {label} | {} |\n", figure.name, figure.about);
            assert!(page.contains(&row), "no such row: {row}");
            for value in figure.labels.iter().flat_map(|(_, values)| values.iter()) {
                assert!(page.contains(&format!("`{value}`")), "{value} of {row}");
            }
        }
    }

    #[test]
    fn readme_shows_a_part_of_the_order_example() {
        let readme = include_str!("../../README.md");
        let (_above, shown) = readme.split_once("```rust,ignore\n").expect("code");
        let (shown, _below) = shown.split_once("```\n").expect("its end");
        let indented: String = shown.lines().map(|line| format!("    {line}\n")).collect();
        assert!(EXAMPLE.contains(&indented), "the README shows another example than order.rs");
    }

    #[test]
    fn removal_script_names_every_reserved_field() {
        let page = include_str!("../../docs/existing-index.md");
        for field in txn_core::store::fields::RESERVED {
            assert!(page.contains(&format!("ctx._source.remove('{field}')")), "{field}");
        }
    }
}
