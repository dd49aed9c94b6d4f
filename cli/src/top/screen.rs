//! What is on the screen, and what the keys do to it.

use super::Seen;
use super::rows::{Row, Sort, rows};
use crate::failure::Failure;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// How far PgUp and PgDn go.
const PAGE: usize = 10;

/// What the larger part of the screen shows.
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
    pub(super) now: Option<Seen>,
    pub(super) before: Option<Seen>,
    pub(super) rows: Vec<Row>,
    pub(super) sort: Sort,
    pub(super) filter: String,
    /// Letters belong to the filter.
    pub(super) typing: bool,
    pub(super) view: View,
    pub(super) selected: usize,
    pub(super) paused: bool,
    /// Why nothing new is there.
    pub(super) trouble: Option<String>,
}

impl Screen {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The server has said something, or nothing.
    pub(super) fn tell(&mut self, seen: Result<Seen, Failure>) {
        match seen {
            Ok(_) if self.paused => {}
            Ok(seen) => {
                self.before = self.now.replace(seen);
                self.trouble = None;
                self.sort_again();
            }
            Err(failure) => self.trouble = Some(failure.message),
        }
    }

    /// The lock that is seen in detail.
    pub(super) fn detail(&self) -> Option<&[u8]> {
        match &self.view {
            View::Detail(key) => Some(key),
            View::Locks | View::Sessions => None,
        }
    }

    /// The rows from what was seen last; the same lock stays chosen, unless the first one is.
    fn sort_again(&mut self) {
        let chosen = self.rows.get(self.selected).map(|row| row.key.clone());
        self.rows = match &self.now {
            Some(now) => rows(now, self.before.as_ref(), &self.filter, self.sort),
            None => Vec::new(),
        };
        let found = chosen.filter(|_| self.selected > 0);
        let found = found.and_then(|key| self.rows.iter().position(|row| row.key == key));
        self.selected = found.unwrap_or(self.selected).min(self.rows.len().saturating_sub(1));
    }

    fn sort_by(&mut self, sort: Sort) {
        (self.sort, self.selected) = (sort, 0);
        self.sort_again();
    }

    /// A key was pressed. Says whether it ends the program.
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
                    if let Some(now) = &mut self.now {
                        // That of another lock.
                        now.detail = None;
                    }
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
        self.sort_again();
    }
}
