//! `docs/languages.md` shows the examples for other languages as they are. That they work is for
//! `scripts/test languages` to prove: it needs those languages and their package registries.

use harness::kind::workspace;
use std::path::PathBuf;

/// The examples: in each folder the one file that is not there to bring libraries.
fn examples() -> Vec<PathBuf> {
    let languages = std::fs::read_dir(workspace().join("docs/languages")).unwrap();
    let files = languages.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    let is_example = |file: &PathBuf| {
        file.file_stem().is_some_and(|stem| stem.to_string_lossy().eq_ignore_ascii_case("lock"))
    };
    files.map(|file| file.unwrap().path()).filter(is_example).collect()
}

#[test]
fn the_page_shows_every_example_as_it_is() {
    let page = std::fs::read_to_string(workspace().join("docs/languages.md")).unwrap();
    let examples = examples();
    assert_eq!(examples.len(), 4, "{examples:?}");
    for example in examples {
        let text = std::fs::read_to_string(&example).unwrap();
        assert!(page.contains(&format!("\n{text}```\n")), "{} is not in it", example.display());
    }
}
