//! Examples of transactions: see the files in `examples/`, each of which runs to its end by itself.
//!
//! This library has no code. It makes the code blocks of the repository's documents part of the tests,
//! so that none of them can go stale.

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
    architecture: "../../ARCHITECTURE.md";
    contributing: "../../CONTRIBUTING.md";
    protocol: "../../docs/protocol.md";
    store_contract: "../../docs/store-contract.md";
    isolation: "../../docs/isolation.md";
    operations: "../../docs/operations.md";
    decisions: "../../docs/decisions.md";
    testing: "../../docs/testing.md";
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_readme_shows_the_example_of_the_order_as_it_is() {
        let example = include_str!("../examples/order.rs");
        let (shown, _test) = example.split_once("\n#[test]").expect("the test at its end");
        let (_about, shown) = shown.split_once("\n\n").expect("the comment at its beginning");
        assert!(include_str!("../../README.md").contains(&format!("```rust\n{shown}```\n")));
    }
}
