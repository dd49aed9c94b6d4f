//! What the documents show is what is compiled.

#[test]
fn the_example_of_the_readme_is_the_example() {
    let readme = include_str!("../../README.md");
    let example = include_str!("../examples/orders.rs");
    assert!(readme.contains(&format!("```rust\n{example}```\n")), "copy it over");
}
