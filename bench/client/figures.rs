//! Figures of several turns.

use std::fmt;

/// The median of some figures, with the smallest and the largest.
pub(crate) struct Spread {
    pub(crate) median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |place: usize| figures.get(place).copied().unwrap_or(f64::NAN);
        let last = figures.len().saturating_sub(1);
        Self { median: at(figures.len() / 2), least: at(0), most: at(last) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, most } = self;
        write!(f, "{median:8.0} ({least:.0}–{most:.0})")
    }
}
