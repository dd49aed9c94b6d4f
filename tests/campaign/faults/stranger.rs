//! A stranger: a client of the primary that may send any command.

use crate::round::{Moment, Round};
use crate::topology::{PairWithStrangers, Topology, cast};
use harness::history::{CallId, Outcome, Request};
use harness::random::Random;
use harness::resp::ReceiveError;
use harness::{Connection, Value};

pub(super) struct Stranger<'a> {
    pub(super) at: &'a PairWithStrangers,
    pub(super) round: &'a Round,
    pub(super) random: &'a mut Random,
    connection: Option<Connection>,
}

impl Stranger<'_> {
    /// Runs an action of a new stranger. A broken connection ends the action; the next stranger opens a new
    /// one.
    pub(super) fn acts(
        at: &dyn Topology,
        moment: &Moment<'_>,
        random: &mut Random,
        what: fn(&mut Stranger<'_>) -> Result<(), ReceiveError>,
    ) {
        let (Some(at), round) = (cast(at), moment.round) else { return };
        let mut stranger = Stranger { at, round, random, connection: None };
        let _broken = what(&mut stranger);
    }

    /// The stranger's connection to the primary, opened at the first use.
    pub(super) fn connection(&mut self) -> Result<&mut Connection, ReceiveError> {
        if self.connection.is_none() {
            self.connection = self.at.connect();
        }
        self.connection.as_mut().ok_or(ReceiveError::Closed)
    }

    pub(super) fn ask(&mut self, command: Vec<Vec<u8>>) -> Result<Value, ReceiveError> {
        self.connection()?.ask(command)
    }

    pub(super) fn send(&mut self, command: Vec<Vec<u8>>) -> Result<(), ReceiveError> {
        let shown = String::from_utf8_lossy(&command.join(&b' ')).into_owned();
        let reply = self.ask(command)?;
        if reply.is_error() {
            self.round.log.surprise(format!("{shown}: {reply}"));
        }
        Ok(())
    }

    /// Runs an action that may end the holds of these keys, and records its outcome as done or unknown.
    pub(super) fn breaks<T>(
        &mut self,
        keys: &[&str],
        act: impl FnOnce(&mut Self) -> Result<T, ReceiveError>,
    ) -> Result<(), ReceiveError> {
        let recorder = &self.round.recorder;
        let sent = |key: &&str| recorder.sent(key, "stranger", Request::Break);
        let calls: Vec<CallId> = keys.iter().map(sent).collect();
        let done = act(self);
        let outcome = if done.is_ok() { Outcome::Done } else { Outcome::Unknown };
        calls.into_iter().for_each(|call| recorder.answered(call, outcome));
        done.map(drop)
    }
}
