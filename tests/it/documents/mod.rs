//! Checks the documents: each example matches a server, each command, option and `INFO` field is described,
//! links have targets, and tables are rendered from existing runs.

mod figures;

use harness::commit::is_ancestor;
use harness::evidence::{self, Record};
use harness::kind::workspace;
use harness::mutants::{self, Mutants};
use harness::transcript::{Transcript, play, server_for};
use harness::{Server, Value, cmd, docs};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn pages() -> Vec<PathBuf> {
    let in_folder = |folder: &str| {
        let entries = std::fs::read_dir(workspace().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let mut pages = [in_folder("docs"), in_folder("docs/commands")].concat();
    pages.push(workspace().join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

fn read(page: &Path) -> String {
    std::fs::read_to_string(page).unwrap_or_else(|e| panic!("{}: {e}", page.display()))
}

/// The examples of a page, with empty lines for all other lines, so that line numbers stay the same. Replies
/// are in RESP2. `None` if there is no example.
fn examples(page: &str) -> Option<String> {
    let mut inside = false;
    let mut found = false;
    let lines = page.lines().map(|line| match line {
        "```console" | "```transcript" => {
            (inside, found) = (true, true);
            ""
        }
        "```" => {
            inside = false;
            ""
        }
        line if inside => line,
        _ => "",
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    found.then(|| text.replacen('\n', "!> proto 2\n", 1))
}

#[test]
fn every_example_matches_a_real_server() {
    for page in pages() {
        let of_command = page.parent().is_some_and(|folder| folder.ends_with("commands"));
        let Some(text) = examples(&read(&page)) else {
            assert!(!of_command, "{} has no example", page.display());
            continue;
        };
        let name = page.strip_prefix(workspace()).unwrap().display().to_string();
        let transcript = Transcript::parse(&name, &text).unwrap_or_else(|e| panic!("{e}"));
        let server = server_for(&transcript);
        play(&server, &transcript, 2).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
}

/// `scripts/test languages` runs these examples, because that needs the languages and their registries.
#[test]
fn the_page_of_other_languages_contains_every_example() {
    let folder = workspace().join("docs/languages");
    let page = read(&folder.with_extension("md"));
    for file in ["bell/lock.mjs", "go/lock.go", "java/Lock.java", "node/lock.mjs", "python/lock.py"]
    {
        let example = read(&folder.join(file));
        assert!(page.contains(&format!("\n{example}```\n")), "{file} is not in it");
    }
}

/// The targets of a page's links to other files or to headings.
fn links(text: &str) -> Vec<String> {
    let code = text.split("```").step_by(2).flat_map(|part| part.split("](").skip(1));
    let targets = code.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned());
    targets.filter(|target| !target.contains("://") && !target.contains(' ')).collect()
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_leads_somewhere_and_every_page_is_in_the_book() {
    let root = workspace();
    let more = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "book/SUMMARY.md"];
    let pages = pages().into_iter().chain(more.map(|name| root.join(name)));
    let mut broken = Vec::new();
    for page in pages.collect::<Vec<_>>() {
        let text = read(&page);
        // Links in the list of the book's pages are relative to the root.
        let is_list = page.ends_with("book/SUMMARY.md");
        let folder = if is_list { root } else { page.parent().unwrap() };
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { folder.join(file) };
            let has_heading = || {
                read(&target).lines().any(|line| line.starts_with('#') && anchor(line) == heading)
            };
            if !target.exists() || !heading.is_empty() && !has_heading() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    let book = links(&read(&root.join("book/SUMMARY.md")));
    for page in self::pages() {
        let name = page.strip_prefix(root).unwrap().display().to_string();
        assert!(book.contains(&name), "book/SUMMARY.md does not list {name}");
    }
}

fn field_names(flat: &Value) -> BTreeSet<String> {
    flat.elements().chunks_exact(2).map(|pair| pair[0].text()).collect()
}

#[test]
fn every_command_has_a_page_with_its_syntax() {
    let server = Server::start();
    let mut client = server.connect();
    let listed = client.run("COMMAND LIST FILTERBY MODULE kvlock");
    let listed: BTreeSet<_> = listed.elements().iter().map(Value::text).collect();
    let commands = docs::ours(&mut client);
    assert_eq!(commands.iter().map(|it| it.name.clone()).collect::<BTreeSet<_>>(), listed);
    let folder = workspace().join("docs/commands");
    let pages: BTreeSet<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(pages, listed);
    let all = read(&workspace().join("docs/commands.md"));
    for command in &commands {
        let name = &command.name;
        // The arity counts the required words. It is negative if more are allowed.
        let required = command.arguments.iter().filter(|it| !it.optional);
        let words = 1 + required.map(|it| 1 + i64::from(it.token.is_some())).sum::<i64>();
        let fixed = command.arguments.iter().all(|it| !it.optional);
        let arity = client.call(cmd!["COMMAND", "INFO", name])[0][1].integer();
        assert_eq!(arity, if fixed { words } else { -words }, "{command}");
        let page = read(&folder.join(format!("{name}.md")));
        let shown = page.split("```text\n").nth(1).and_then(|block| block.lines().next());
        assert_eq!(shown, Some(command.to_string().as_str()), "{name}.md");
        assert!(all.contains(&format!("](commands/{name}.md)")), "docs/commands.md: {name}");
    }
}

/// `arguments.txt` has a row for each number argument of each command, one for each name of an owner, waiter
/// or participant, and one with all option keywords.
#[test]
fn every_argument_is_tried_with_wrong_values() {
    let tried = read(&workspace().join("tests/transcripts/arguments.txt"));
    for command in docs::ours(&mut Server::start().connect()) {
        let row = format!("!> | {} ", command.name.to_uppercase());
        let rows: Vec<_> = tried.lines().filter_map(|line| line.strip_prefix(&row)).collect();
        let several = command.arguments.iter().flat_map(|it| &it.parts);
        let arguments: Vec<_> = command.arguments.iter().chain(several).collect();
        let numbers = arguments.iter().filter(|it| it.kind == "integer").count();
        assert_eq!(rows.iter().filter(|row| row.contains("$N")).count(), numbers, "{command}");
        let is_name = |name: &str| ["owner", "waiter", "participant"].contains(&name);
        for name in arguments.iter().map(|it| &*it.name).filter(|name| is_name(name)) {
            let named = |row: &&str| row.contains("$OWNER") && row.ends_with(name);
            assert!(rows.iter().any(named), "{command}: {name}");
        }
        let optional = command.arguments.iter().filter(|it| it.optional);
        let optional = optional.flat_map(|it| it.parts.iter().chain([it]));
        let words: Vec<_> = optional.filter_map(|it| it.token.as_deref()).collect();
        let all = |row: &&str| words.iter().all(|word| row.contains(word));
        assert!(words.is_empty() || rows.iter().any(all), "{command}");
    }
}

#[test]
fn every_option_and_every_field_is_described() {
    let server = Server::start();
    let mut client = server.connect();
    let operations = read(&workspace().join("docs/operations.md"));
    let options = client.run("CONFIG GET kvlock.*");
    let info = client.run("INFO kvlock").text();
    let fields = info.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name);
    let described = |name: &str| operations.contains(&format!("`{name}`"));
    for name in fields.map(str::to_owned).chain(field_names(&options)) {
        assert!(described(&name), "docs/operations.md does not describe {name}");
    }
}

#[test]
fn the_changelog_knows_this_version() {
    let changelog = read(&workspace().join("CHANGELOG.md"));
    assert!(changelog.contains(&format!("[{}]", env!("CARGO_PKG_VERSION"))), "{changelog}");
}

/// `scripts/campaign --render` writes these tables from the runs under `docs/evidence/`.
#[test]
fn tables_of_runs_are_rendered_and_name_existing_commits() {
    for (path, text, rendered) in evidence::pages() {
        assert!(text == rendered, "{}: run `scripts/campaign --render`", path.display());
    }
    for record in evidence::records() {
        let Record { suite, commit, violations, .. } = record;
        assert!(is_ancestor(&commit), "{suite}: {commit} is no commit of this branch");
        assert!(violations.is_empty(), "{suite}: {violations:?}");
    }
    for Mutants { file, commit, .. } in mutants::published() {
        let all = commit.split("..").all(is_ancestor);
        assert!(all, "{file}: {commit} is no commit of this branch");
        assert!(workspace().join(&file).exists(), "mutants of {file}, which is gone");
    }
}
