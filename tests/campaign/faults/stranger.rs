//! A stranger: a client at the primary that does to keys and clients what any client may.

use crate::round::{Moment, Round};
use crate::topology::{Strangers, Topology};
use harness::history::{CallId, Outcome};
use harness::random::Random;
use harness::resp::ReceiveError;
use harness::{Connection, Value};

pub(super) struct Stranger<'a> {
    pub(super) at: &'a Strangers,
    pub(super) round: &'a Round,
    pub(super) random: &'a mut Random,
    connection: Option<Connection>,
}

/// A table of faults of strangers: name, weight, and what a [`Stranger`] does.
macro_rules! of_strangers {
    ($($name:literal, $weight:literal, $act:expr;)+) => {
        &[$($crate::faults::fault(
            $name,
            $weight,
            |at| at.strangers().is_some(),
            |at, moment, random| Stranger::acts(at, moment, random, $act),
        )),+]
    };
}

pub(super) use of_strangers;

impl Stranger<'_> {
    /// One does that. If its connection is broken off, another one comes some time.
    pub(super) fn acts(
        at: &dyn Topology,
        moment: &Moment<'_>,
        random: &mut Random,
        what: impl FnOnce(&mut Stranger<'_>) -> Result<(), ReceiveError>,
    ) {
        let (Some(at), round) = (at.strangers(), moment.round) else { return };
        let mut stranger = Stranger { at, round, random, connection: None };
        let _broken = what(&mut stranger);
    }

    /// Its connection to the primary.
    pub(super) fn connection(&mut self) -> Result<&mut Connection, ReceiveError> {
        if self.connection.is_none() {
            self.connection = self.at.connect();
        }
        self.connection.as_mut().ok_or(ReceiveError::Closed)
    }

    pub(super) fn ask(&mut self, command: Vec<Vec<u8>>) -> Result<Value, ReceiveError> {
        self.connection()?.ask(command)
    }

    pub(super) fn say(&mut self, command: Vec<Vec<u8>>) -> Result<(), ReceiveError> {
        let shown = String::from_utf8_lossy(&command.join(&b' ')).into_owned();
        let reply = self.ask(command)?;
        if reply.is_error() {
            self.round.notes.surprise(format!("{shown}: {reply}"));
        }
        Ok(())
    }

    /// These ends of holds are done, or nobody knows.
    pub(super) fn broken(&self, calls: &[CallId], sure: bool) {
        let outcome = if sure { Outcome::Done } else { Outcome::Unknown };
        calls.iter().for_each(|call| self.round.recorder.answered(*call, outcome));
    }
}
