//! Keys in memory.

use super::ctx::{Ctx, here};
use super::{Arg, Text};
use std::cell::RefCell;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    String(Vec<u8>),
}

/// What is at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) stored: Stored,
    /// When it expires, in milliseconds since 1970.
    pub(crate) until: Option<u64>,
}

impl Entry {
    /// The fields of a hash.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let fields = match &self.stored {
            Stored::Hash(fields) => Some(fields),
            Stored::String(_) => None,
        };
        fields.into_iter().flatten().map(|(field, value)| (&field[..], &value[..]))
    }
}

pub(crate) type Keyspace = BTreeMap<Vec<u8>, Entry>;

/// What has become of a key.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) name: Vec<u8>,
    pub(crate) before: Option<Entry>,
    pub(crate) after: Option<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Empty,
    String,
    Hash,
    Other,
}

/// A key that is open. When it is closed, all that was done to it is one [`Changed`].
#[derive(Debug)]
pub(crate) struct Key<'a> {
    name: Arg<'a>,
    /// What was there before it was changed, if it was.
    before: RefCell<Option<Option<Entry>>>,
}

impl Ctx<'_> {
    pub(crate) fn open_to_read<'a>(&'a self, name: Arg<'a>) -> Option<Key<'a>> {
        let is_there = here(|host| {
            let entry = host.keys.get(name.bytes());
            entry.is_some_and(|entry| entry.until.is_none_or(|until| until >= host.now.unix().0))
        });
        is_there.then(|| Key { name, before: RefCell::default() })
    }

    pub(crate) fn open_to_write<'a>(&'a self, name: Arg<'a>) -> Option<Key<'a>> {
        if self.open_to_read(name).is_none() {
            here(|host| host.expires(name.bytes()));
        }
        Some(Key { name, before: RefCell::default() })
    }
}

impl super::Host {
    /// Deletes a key whose time is over.
    pub(crate) fn expires(&mut self, name: &[u8]) {
        if let Some(before) = self.keys.remove(name) {
            self.changed.push(Changed { name: name.to_vec(), before: Some(before), after: None });
        }
    }
}

impl Key<'_> {
    fn look<R>(&self, look: impl FnOnce(Option<&Entry>) -> R) -> R {
        here(|host| look(host.keys.get(self.name.bytes())))
    }

    fn write(&self, write: impl FnOnce(Option<Entry>) -> Option<Entry>) {
        here(|host| {
            let entry = host.keys.remove(self.name.bytes());
            self.before.borrow_mut().get_or_insert_with(|| entry.clone());
            if let Some(entry) = write(entry) {
                host.keys.insert(self.name.bytes().to_vec(), entry);
            }
        });
    }

    pub(crate) fn kind(&self) -> KeyKind {
        self.look(|entry| match entry.map(|entry| &entry.stored) {
            None => KeyKind::Empty,
            Some(Stored::Hash(_)) => KeyKind::Hash,
            Some(Stored::String(_)) => KeyKind::String,
        })
    }

    pub(crate) fn fields(&self) -> usize {
        self.look(|entry| entry.map_or(0, |entry| entry.fields().count()))
    }

    pub(crate) fn expires(&self) -> Option<u64> {
        self.look(|entry| entry?.until)
    }

    pub(crate) fn get<const N: usize>(&self, names: [Arg<'_>; N]) -> [Option<Text>; N] {
        names.map(|name| {
            self.look(|entry| {
                let found = entry?.fields().find(|(field, _)| *field == name.bytes());
                found.map(|(_, value)| Text::new(value))
            })
        })
    }

    pub(crate) fn has(&self, field: Arg<'_>) -> bool {
        let [value] = self.get([field]);
        value.is_some()
    }

    pub(crate) fn set(&self, fields: &[(Arg<'_>, Arg<'_>)]) {
        self.change_fields(|hash| {
            let owned = |(field, value): &(Arg<'_>, Arg<'_>)| {
                (field.bytes().to_vec(), value.bytes().to_vec())
            };
            hash.extend(fields.iter().map(owned));
        });
    }

    pub(crate) fn unset<'f>(&self, fields: impl Iterator<Item = Arg<'f>> + Clone) {
        self.change_fields(|hash| fields.for_each(|field| drop(hash.remove(field.bytes()))));
    }

    /// A hash without fields is gone.
    fn change_fields(&self, change: impl FnOnce(&mut BTreeMap<Vec<u8>, Vec<u8>>)) {
        self.write(|entry| {
            let until = entry.as_ref().and_then(|entry| entry.until);
            let mut hash = match entry.map(|entry| entry.stored) {
                Some(Stored::Hash(hash)) => hash,
                Some(Stored::String(_)) | None => BTreeMap::new(),
            };
            change(&mut hash);
            (!hash.is_empty()).then_some(Entry { stored: Stored::Hash(hash), until })
        });
    }

    pub(crate) fn set_expires(&self, at: u64) {
        self.write(|entry| entry.map(|entry| Entry { until: Some(at), ..entry }));
    }

    pub(crate) fn replace<const N: usize>(
        &self,
        fields: [(Arg<'_>, Arg<'_>); N],
        _other: Option<Arg<'_>>,
        at: u64,
        _words: [Arg<'_>; 2],
    ) {
        self.delete();
        self.set(&fields);
        self.set_expires(at);
    }

    pub(crate) fn delete(&self) {
        self.write(|_| None);
    }

    /// Counts it as changed.
    pub(crate) fn touch(&self) {
        self.write(|entry| entry);
    }

    pub(crate) fn string(&self) -> Vec<u8> {
        self.look(|entry| match entry.map(|entry| &entry.stored) {
            Some(Stored::String(bytes)) => bytes.clone(),
            Some(Stored::Hash(_)) | None => Vec::new(),
        })
    }

    pub(crate) fn set_string(&self, value: Arg<'_>) {
        let stored = Stored::String(value.bytes().to_vec());
        self.write(|_| Some(Entry { stored, until: None }));
    }

    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.scan(&mut Cursor, visit);
    }

    /// Shows all fields at once.
    pub(crate) fn scan(&self, _: &mut Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        self.look(|entry| {
            entry
                .iter()
                .flat_map(|entry| entry.fields())
                .for_each(|(field, value)| visit(field, value));
        });
        false
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else { return };
        here(|host| {
            let name = self.name.bytes().to_vec();
            let after = host.keys.get(&name).cloned();
            host.changed.push(Changed { name, before, after });
        });
    }
}

/// A place in a hash: there is but one.
#[derive(Debug, Default)]
pub(crate) struct Cursor;

impl Cursor {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn restart(&mut self) {}
}
