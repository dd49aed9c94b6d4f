//! Keys in memory.

use super::ctx::{Ctx, here};
use super::{Arg, KeyKind, Text};
use std::collections::{BTreeMap, BTreeSet};

/// Field name under which a string's value is stored.
pub(super) const STRING: &[u8] = b"";

/// The value at a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) fields: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Expiry time, in milliseconds since 1970.
    pub(crate) until: Option<u64>,
}

impl Entry {
    pub(crate) fn of_string(value: &[u8]) -> Self {
        Self { fields: BTreeMap::from([(STRING.to_vec(), value.to_vec())]), until: None }
    }

    pub(crate) fn string(&self) -> &[u8] {
        self.fields.get(STRING).map_or(&[], Vec::as_slice)
    }
}

pub(crate) type Keyspace = BTreeMap<Vec<u8>, Entry>;

/// A changed key.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) name: Vec<u8>,
    pub(crate) before: Option<Entry>,
    pub(crate) after: Option<Entry>,
}

/// The differences between two keyspaces.
pub(crate) fn changed(before: &Keyspace, after: &Keyspace) -> Vec<Changed> {
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let both = names.into_iter().map(|name| (name, before.get(name), after.get(name)));
    both.filter(|(_, before, after)| before != after)
        .map(|(name, before, after)| Changed {
            name: name.clone(),
            before: before.cloned(),
            after: after.cloned(),
        })
        .collect()
}

/// An open key.
#[derive(Debug)]
pub(crate) struct Key<'a>(Arg<'a>);

impl Ctx<'_> {
    pub(crate) fn open_to_read<'a>(&'a self, name: Arg<'a>) -> Option<Key<'a>> {
        let is_there = here(|host| {
            let entry = host.keys.get(name.bytes());
            entry.is_some_and(|entry| entry.until.is_none_or(|until| until >= host.now.unix().0))
        });
        is_there.then_some(Key(name))
    }

    pub(crate) fn open_to_write<'a>(&'a self, name: Arg<'a>) -> Option<Key<'a>> {
        if self.open_to_read(name).is_none() {
            here(|host| host.keys.remove(name.bytes()));
        }
        Some(Key(name))
    }
}

impl Key<'_> {
    fn look<R>(&self, look: impl FnOnce(Option<&Entry>) -> R) -> R {
        here(|host| look(host.keys.get(self.0.bytes())))
    }

    /// Changes the value, which may not exist yet. A hash without fields is deleted.
    fn write(&self, write: impl FnOnce(&mut Entry)) {
        here(|host| {
            let mut entry = host.keys.remove(self.0.bytes()).unwrap_or_default();
            write(&mut entry);
            if !entry.fields.is_empty() {
                host.keys.insert(self.0.bytes().to_vec(), entry);
            }
        });
    }

    pub(crate) fn kind(&self) -> KeyKind {
        self.look(|entry| match entry {
            None => KeyKind::Empty,
            Some(entry) if entry.fields.contains_key(STRING) => KeyKind::String,
            Some(_) => KeyKind::Hash,
        })
    }

    pub(crate) fn fields(&self) -> usize {
        self.look(|entry| entry.map_or(0, |entry| entry.fields.len()))
    }

    pub(crate) fn expires(&self) -> Option<u64> {
        self.look(|entry| entry?.until)
    }

    pub(crate) fn get<const N: usize>(&self, names: [Arg<'_>; N]) -> [Option<Text>; N] {
        names.map(|name| self.look(|entry| Some(Text::new(entry?.fields.get(name.bytes())?))))
    }

    pub(crate) fn has(&self, field: Arg<'_>) -> bool {
        self.look(|entry| entry.is_some_and(|entry| entry.fields.contains_key(field.bytes())))
    }

    pub(crate) fn set(&self, fields: &[(Arg<'_>, Arg<'_>)]) {
        let owned =
            |(field, value): &(Arg<'_>, Arg<'_>)| (field.bytes().to_vec(), value.bytes().to_vec());
        self.write(|entry| entry.fields.extend(fields.iter().map(owned)));
    }

    pub(crate) fn unset<'f>(&self, fields: impl Iterator<Item = Arg<'f>> + Clone) {
        self.write(|entry| fields.for_each(|field| drop(entry.fields.remove(field.bytes()))));
    }

    pub(crate) fn set_expires(&self, at: u64) {
        self.write(|entry| entry.until = Some(at));
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
        self.write(|entry| *entry = Entry::default());
    }

    pub(crate) fn touch(&self) {}

    pub(crate) fn string(&self) -> Vec<u8> {
        self.look(|entry| entry.map_or(Vec::new(), |entry| entry.string().to_vec()))
    }

    pub(crate) fn set_string(&self, value: Arg<'_>) {
        self.write(|entry| *entry = Entry::of_string(value.bytes()));
    }

    pub(crate) fn set_string_until(&self, value: Arg<'_>, at: u64) {
        self.write(|entry| {
            *entry = Entry::of_string(value.bytes());
            entry.until = Some(at);
        });
    }

    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.scan(&mut Cursor, visit);
    }

    /// Visits all fields at once.
    pub(crate) fn scan(&self, _: &mut Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        self.look(|entry| {
            let fields = entry.into_iter().flat_map(|entry| &entry.fields);
            fields.for_each(|(field, value)| visit(field, value));
        });
        false
    }
}

/// A cursor in a hash. A scan has only one step here.
#[derive(Debug, Default)]
pub(crate) struct Cursor;

impl Cursor {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn restart(&mut self) {}
}
