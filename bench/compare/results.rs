//! The results: every figure of every round.

use crate::figures::Figures;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Share of the machine that other programs may use. A measurement during which they use more is repeated
/// once.
pub(crate) const BUSY: f64 = 0.1;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) command: String,
    pub(crate) rounds: usize,
    pub(crate) minutes: f64,
    pub(crate) machine: BTreeMap<String, String>,
    /// Versions of the contenders' libraries, by contender.
    pub(crate) versions: BTreeMap<String, String>,
    /// Scenarios that were measured in a later run than the rest, and the origin of their rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) later: BTreeMap<String, Origin>,
    /// Contenders that were not measured, and why.
    pub(crate) absent: BTreeMap<String, String>,
    pub(crate) rows: Vec<Row>,
}

/// Command, commit and circumstances of the measurement of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) command: String,
    pub(crate) rounds: usize,
    pub(crate) minutes: f64,
    /// The commit.
    pub(crate) at: String,
    /// The day.
    pub(crate) on: String,
    pub(crate) processor: String,
    /// Share of the machine that other programs used.
    pub(crate) elsewhere: Option<f64>,
}

/// The figures of one contender in one cell of a scenario.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) scenario: String,
    pub(crate) cell: String,
    pub(crate) contender: String,
    /// For each figure, its values in the rounds in which it was measured.
    pub(crate) figures: BTreeMap<String, Vec<f64>>,
    /// Errors of the rounds in which the measurement failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) trouble: Vec<String>,
}

/// Median, smallest and largest of several values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Row {
    pub(crate) fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.figures.get(figure)?.clone())
    }

    pub(crate) fn median(&self, figure: &str) -> Option<f64> {
        self.spread(figure).map(|spread| spread.median)
    }
}

impl Spread {
    /// The spread of these values; `None` without values.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self { median, least, most })
    }
}

impl Results {
    /// Returns the command, commit and circumstances of the measurement of a scenario.
    pub(crate) fn origin(&self, scenario: &str) -> Origin {
        let fact = |name: &str| self.machine.get(name).cloned().unwrap_or_default();
        self.later.get(scenario).cloned().unwrap_or_else(|| Origin {
            command: self.command.clone(),
            rounds: self.rounds,
            minutes: self.minutes,
            at: fact("kvlock at"),
            on: fact("day"),
            processor: fact("processor"),
            elsewhere: self.elsewhere(Some(scenario)),
        })
    }

    pub(crate) fn row(&mut self, scenario: &str, cell: &str, contender: &str) -> &mut Row {
        let is_it =
            |row: &Row| row.scenario == scenario && row.cell == cell && row.contender == contender;
        let place = self.rows.iter().position(is_it).unwrap_or_else(|| {
            self.rows.push(Row {
                scenario: scenario.to_owned(),
                cell: cell.to_owned(),
                contender: contender.to_owned(),
                figures: BTreeMap::new(),
                trouble: Vec::new(),
            });
            self.rows.len() - 1
        });
        &mut self.rows[place]
    }

    /// Returns the share of the machine that other programs used: the median of the rows of this scenario, or
    /// of all rows.
    pub(crate) fn elsewhere(&self, scenario: Option<&str>) -> Option<f64> {
        let asked = |row: &&Row| scenario.is_none_or(|scenario| row.scenario == scenario);
        let shares = self.rows.iter().filter(asked).filter_map(|row| row.median("elsewhere_share"));
        Spread::of(shares.collect()).map(|spread| spread.median)
    }

    pub(crate) fn find(&self, scenario: &str, cell: &str, contender: &str) -> Option<&Row> {
        self.in_cell(scenario, cell).into_iter().find(|row| row.contender == contender)
    }

    pub(crate) fn in_cell(&self, scenario: &str, cell: &str) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.scenario == scenario && row.cell == cell).collect()
    }

    /// Names of the cells of a scenario, in the order of the rows.
    pub(crate) fn cells(&self, scenario: &str) -> Vec<&str> {
        let mut cells = Vec::new();
        for row in self.rows.iter().filter(|row| row.scenario == scenario) {
            if !cells.contains(&row.cell.as_str()) {
                cells.push(&row.cell);
            }
        }
        cells
    }
}

impl Row {
    pub(crate) fn add(&mut self, figures: Figures) {
        for (name, value) in figures {
            // Four digits are more than the spread justifies. JSON has no infinities and no NaN.
            if value.is_finite() {
                self.figures.entry(name).or_default().push(rounded(value));
            }
        }
    }
}

fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Returns the old results, in which each scenario of `newer` replaces the old one.
pub(crate) fn merged(mut old: Results, newer: Results) -> Results {
    for scenario in newer.rows.iter().map(|row| &row.scenario) {
        old.later.insert(scenario.clone(), newer.origin(scenario));
    }
    old.rows.retain(|row| !newer.rows.iter().any(|new| new.scenario == row.scenario));
    old.absent.retain(|name, _| !newer.rows.iter().any(|new| new.contender == *name));
    old.absent.extend(newer.absent);
    old.versions.extend(newer.versions);
    old.rows.extend(newer.rows);
    old.rows.sort_by_key(|row| row.scenario.parse::<u32>().unwrap_or(0));
    old
}
