//! Modules of a package have no circular imports, so each can be read after the modules that it uses.

use harness::kind::workspace;
use regex::{Captures, Regex};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folders whose modules must not import each other in a circle.
const SOURCES: [&str; 6] = [
    "client/src",
    "client/quorum/src",
    "cli/src",
    "module/core/src",
    "module/core/reference/src",
    "module/src",
];

/// The imports of each module, by path: `engine::lease::late`. The crate itself has the empty path.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn module_of(file: &Path, root: &Path) -> String {
    let path = file.strip_prefix(root).unwrap().with_extension("");
    let parts = path.iter().map(|part| part.to_str().unwrap());
    parts.filter(|part| !["mod", "lib", "main"].contains(part)).collect::<Vec<_>>().join("::")
}

/// The text of a module without comments and unit tests.
fn product(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The text of a module, with `super::…` written as `crate::…`.
fn absolute(text: &str, module: &str) -> String {
    let path = Regex::new(r"\b((?:super::)+)").unwrap();
    let crate_path = |found: &Captures<'_>| {
        let mut above = module;
        for _ in found[1].matches("super") {
            above = above.rsplit_once("::").map_or("", |(above, _)| above);
        }
        if above.is_empty() { "crate::".to_owned() } else { format!("crate::{above}::") }
    };
    path.replace_all(text, crate_path).into_owned()
}

/// The modules that a text names by `crate::…`.
fn named_in(text: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let path = Regex::new(r"\bcrate::(?:\{([^}]*)\}|((?:\w+::)*\w+)(?:::\{([^}]*)\})?)").unwrap();
    let mut named = BTreeSet::new();
    for found in path.captures_iter(text) {
        let base = found.get(2).map_or("", |base| base.as_str());
        let group = found.get(1).or_else(|| found.get(3)).map_or("self", |group| group.as_str());
        for last in group.split(',').map(str::trim).filter(|last| !last.is_empty()) {
            let last = last.split(" as ").next().unwrap();
            let whole = if last == "self" { base.to_owned() } else { format!("{base}::{last}") };
            let mut name = whole.trim_start_matches("::");
            while !modules.contains(name) {
                name = name.rsplit_once("::").map_or("", |(above, _)| above);
            }
            named.insert(name.to_owned());
        }
    }
    // Items at the root of the crate are not counted.
    named.remove("");
    named
}

fn imports(root: &Path) -> Imports {
    let mut found = Vec::new();
    files(root, &mut found);
    let modules: BTreeSet<_> = found.iter().map(|file| module_of(file, root)).collect();
    let read = |file: &PathBuf| {
        let module = module_of(file, root);
        let text = product(&fs::read_to_string(file).unwrap());
        let mut named = named_in(&absolute(&text, &module), &modules);
        named.remove(&module);
        (module, named)
    };
    found.iter().map(read).collect()
}

/// The modules that are in circles, or between them.
fn circles(mut imports: Imports) -> Imports {
    loop {
        let before = imports.len();
        let all: BTreeSet<_> = imports.keys().cloned().collect();
        let used: BTreeSet<_> = imports.values().flatten().cloned().collect();
        imports.retain(|module, named| used.contains(module) && !named.is_disjoint(&all));
        if imports.len() == before {
            return imports;
        }
    }
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    for source in SOURCES {
        let imports = imports(&workspace().join(source));
        assert!(imports.values().any(|named| !named.is_empty()), "{source}: no imports were found");
        assert_eq!(circles(imports), Imports::new(), "{source}");
    }
}

#[test]
fn a_circle_is_found_between_modules_that_use_it() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let graph = [("a", set(&["b"])), ("b", set(&["c"])), ("c", set(&["b", "d"])), ("d", set(&[]))];
    let graph: Imports = graph.map(|(module, named)| (module.to_owned(), named)).into();
    assert_eq!(circles(graph).keys().collect::<Vec<_>>(), ["b", "c"]);
    let text = "use crate::a::b::{Thing, c::Other};\nlet x = crate::d::make();\n// crate::e::X";
    let modules = set(&["", "a", "a::b", "a::b::c", "d", "e"]);
    assert_eq!(named_in(&product(text), &modules), set(&["a::b", "a::b::c", "d"]));
    let text =
        "use super::c::Thing;\nuse super::super::super::{d, e::make};\npub(super) struct Other;";
    let named = named_in(&absolute(text, "a::b::x"), &modules);
    assert_eq!(named, set(&["a::b::c", "d", "e"]));
}
