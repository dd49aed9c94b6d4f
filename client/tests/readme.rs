//! The README shows the text of `examples/orders.rs`, which is compiled.

#[test]
fn the_example_of_the_readme_is_the_example() {
    let readme = include_str!("../../README.md");
    let example = include_str!("../examples/orders.rs");
    let (_, shown) = example.split_once("\n\n").expect("a header, a blank line, the example");
    assert!(readme.contains(&format!("```rust\n{shown}```\n")), "copy it over");
}
