//! The state of the screen, and how key presses and replies of the server change it.

use super::Snapshot;
use super::rows::{Row, Sort, rows};
use crate::failure::Failure;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Number of rows that PgUp and PgDn move by.
const PAGE: usize = 10;

/// Content of the main part of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    Locks,
    Detail(Vec<u8>),
    Sessions,
}

#[derive(Debug, Default)]
pub(crate) struct Screen {
    pub(super) name: String,
    pub(super) now: Option<Snapshot>,
    pub(super) before: Option<Snapshot>,
    pub(super) rows: Vec<Row>,
    pub(super) sort: Sort,
    pub(super) filter: String,
    /// `true` while typed characters are added to the filter.
    pub(super) typing: bool,
    pub(super) view: View,
    pub(super) selected: usize,
    pub(super) paused: bool,
    /// Error message of the last request, if it failed.
    pub(super) trouble: Option<String>,
}

impl Screen {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Updates the state with an answer of the server, or with its failure. While the screen is paused, a
    /// snapshot only provides the details of a newly requested lock.
    pub(super) fn update(&mut self, answer: Result<Snapshot, Failure>) {
        let snapshot = match answer {
            Ok(snapshot) => snapshot,
            Err(failure) => {
                self.trouble = Some(failure.message);
                return;
            }
        };
        self.trouble = None;
        match &mut self.now {
            Some(now) if self.paused => {
                let is_new =
                    snapshot.detail.as_ref().is_some_and(|(key, _)| now.detail_of(key).is_none());
                if is_new {
                    now.detail = snapshot.detail;
                }
            }
            _ => {
                self.before = self.now.replace(snapshot);
                self.sort_rows();
            }
        }
    }

    /// Returns the key of the lock that is shown in detail.
    pub(super) fn detail(&self) -> Option<&[u8]> {
        match &self.view {
            View::Detail(key) => Some(key),
            View::Locks | View::Sessions => None,
        }
    }

    /// Creates the rows from the last snapshot. The same lock stays selected. But if the first row was
    /// selected, the first row stays selected.
    fn sort_rows(&mut self) {
        let selected = self.rows.get(self.selected).map(|row| row.key.clone());
        self.rows = match &self.now {
            Some(now) => rows(now, self.before.as_ref(), &self.filter, self.sort),
            None => Vec::new(),
        };
        let found = selected.filter(|_| self.selected > 0);
        let found = found.and_then(|key| self.rows.iter().position(|row| row.key == key));
        self.selected = found.unwrap_or(self.selected).min(self.rows.len().saturating_sub(1));
    }

    fn sort_by(&mut self, sort: Sort) {
        (self.sort, self.selected) = (sort, 0);
        self.sort_rows();
    }

    /// Handles a key. Returns whether the key ends the program.
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code == KeyCode::Char('c');
        }
        if self.typing {
            self.type_filter(key.code);
            return false;
        }
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('s') => {
                let is_on = self.view == View::Sessions;
                self.view = if is_on { View::Locks } else { View::Sessions };
            }
            KeyCode::Char('w') => self.sort_by(Sort::Waiters),
            KeyCode::Char('l') => self.sort_by(Sort::Longest),
            KeyCode::Char('h') => self.sort_by(Sort::HandOffs),
            KeyCode::Char('t') => self.sort_by(Sort::Waited),
            KeyCode::Char('k') => self.sort_by(Sort::Name),
            KeyCode::Char('/') => (self.typing, self.view) = (true, View::Locks),
            KeyCode::Esc if self.view == View::Locks => self.filter_by(String::new()),
            KeyCode::Esc => self.view = View::Locks,
            KeyCode::Enter => {
                if let Some(row) = self.rows.get(self.selected) {
                    self.view = View::Detail(row.key.clone());
                }
            }
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::Home => self.selected = 0,
            KeyCode::Down => self.down(1),
            KeyCode::PageDown => self.down(PAGE),
            KeyCode::End => self.down(usize::MAX),
            _ => {}
        }
        false
    }

    fn down(&mut self, by: usize) {
        let last = self.rows.len().saturating_sub(1);
        self.selected = self.selected.saturating_add(by).min(last);
    }

    fn type_filter(&mut self, code: KeyCode) {
        let mut filter = std::mem::take(&mut self.filter);
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                filter.clear();
            }
            KeyCode::Backspace => _ = filter.pop(),
            KeyCode::Char(letter) => filter.push(letter),
            _ => {}
        }
        self.filter_by(filter);
    }

    fn filter_by(&mut self, filter: String) {
        (self.filter, self.selected) = (filter, 0);
        self.sort_rows();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::{Entry, Figures};
    use std::time::Instant;

    /// Returns an answer with two locks, and with the details of the given lock.
    fn snapshot(detail: Option<&str>) -> Result<Snapshot, Failure> {
        let lock = |key: &str| Entry::of([("key", key)]);
        Ok(Snapshot {
            at: Instant::now(),
            figures: Figures::default(),
            waited_for: Some(vec![lock("a"), lock("b")]),
            profile: None,
            sessions: None,
            detail: detail.map(|key| (key.into(), Entry::of([("owner", key)]))),
        })
    }

    fn press(screen: &mut Screen, code: KeyCode) {
        screen.press(KeyEvent::new(code, KeyModifiers::NONE));
    }

    fn shown_owner(screen: &Screen) -> Option<String> {
        let key = screen.detail().unwrap();
        screen.now.as_ref().unwrap().detail_of(key).map(|detail| detail.text("owner"))
    }

    #[test]
    fn a_late_answer_is_not_shown_under_another_lock() {
        let mut screen = Screen::new("server");
        screen.update(snapshot(None));
        press(&mut screen, KeyCode::Enter);
        press(&mut screen, KeyCode::Esc);
        press(&mut screen, KeyCode::Down);
        press(&mut screen, KeyCode::Enter);
        screen.update(snapshot(Some("a")));
        assert_eq!((screen.detail(), shown_owner(&screen)), (Some(&b"b"[..]), None));
        screen.update(snapshot(Some("b")));
        assert_eq!(shown_owner(&screen).as_deref(), Some("b"));
    }

    #[test]
    fn a_paused_screen_shows_requested_details_and_clears_old_errors() {
        let mut screen = Screen::new("server");
        screen.update(snapshot(None));
        press(&mut screen, KeyCode::Char('p'));
        press(&mut screen, KeyCode::Enter);
        screen.update(Err(Failure::trouble("no connection".to_owned())));
        screen.update(snapshot(Some("a")));
        assert_eq!((shown_owner(&screen).as_deref(), &screen.trouble), (Some("a"), &None));
    }
}
