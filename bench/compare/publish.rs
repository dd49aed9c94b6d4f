//! Writes results to a folder, and tables to README and `docs/performance.md`.

use crate::results::Results;
use crate::{plot, table};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Writes the figures, the tables and the pictures.
pub(crate) fn write(results: &Results, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    // One line for each row, so that a diff shows single changes.
    let rows: Vec<String> =
        results.rows.iter().map(|row| serde_json::to_string(row).unwrap()).collect();
    let head = Results { rows: Vec::new(), ..copy(results) };
    let json = serde_json::to_string_pretty(&head).unwrap();
    let json = json.replace("\"rows\": []", &format!("\"rows\": [\n{}\n  ]", rows.join(",\n")));
    fs::write(folder.join("results.json"), json + "\n").unwrap();

    let mut tables = String::from("# All figures\n\n");
    writeln!(tables, "{}", table::provenance(results)).unwrap();
    for layout in table::LAYOUTS {
        let number = layout.scenario;
        writeln!(tables, "## {number}\n\n{}", table::scenario(results, layout)).unwrap();
    }
    fs::write(folder.join("tables.md"), tables.trim_end().to_owned() + "\n").unwrap();
    plot::all(results, folder).unwrap();
}

fn copy(results: &Results) -> Results {
    serde_json::from_value(serde_json::to_value(results).unwrap()).unwrap()
}

pub(crate) fn read(folder: &Path) -> Results {
    let text =
        fs::read_to_string(folder.join("results.json")).expect("no results: run scripts/bench");
    serde_json::from_str(&text).unwrap()
}

/// Replaces the text between `<!-- bench:begin NAME -->` and `<!-- bench:end -->` in the documents.
pub(crate) fn fill_documents(results: &Results, root: &Path) {
    for document in ["README.md", "docs/performance.md"] {
        let path = root.join(document);
        let Ok(mut text) = fs::read_to_string(&path) else { continue };
        text = filled(&text, "front", &table::front(results));
        text = filled(&text, "summary", &table::summary(results));
        text = filled(&text, "client", &table::client(results));
        text = filled(&text, "provenance", &table::provenance(results));
        for layout in table::LAYOUTS {
            text = filled(&text, layout.scenario, &table::scenario(results, layout));
        }
        fs::write(path, text).unwrap();
    }
}

fn filled(text: &str, name: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- bench:begin {name} -->\n"), "<!-- bench:end -->");
    let Some((before, rest)) = text.split_once(&begin) else { return text.to_owned() };
    let Some((_, after)) = rest.split_once(end) else { return text.to_owned() };
    format!("{before}{begin}\n{}\n\n{end}{after}", content.trim())
}
