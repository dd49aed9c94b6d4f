//! What the clients do at a semaphore: take permits, use them, and give them back or not.

use crate::client::Ending;
use crate::load::{LEASES_MS, LONG_MS, Wish, Worker, ms};
use harness::cmd;
use harness::history::Request;

/// How many permits each semaphore has.
pub(crate) const PERMITS: u64 = 4;

impl Worker<'_> {
    pub(crate) fn turn_at_semaphore(&mut self) {
        if self.random.percent(4) {
            return self.meddle_with_permits();
        }
        let (lease, permits) = (self.lease(), 1 + self.random.below(PERMITS));
        match self.get_permits(lease, permits) {
            Ending::Done(_) => self.use_permits(lease, permits),
            Ending::Unknown if lease == LONG_MS => self.give_all_back(),
            Ending::Failed => {
                // A stranger may have deleted it.
                self.client.reconnect();
                self.client.ask(cmd!["SEM.SET", self.key, PERMITS, "NX"]);
            }
            Ending::Refused | Ending::Unknown => {}
        }
    }

    fn wants_permits(lease: u64, timeout: Option<u64>) -> Request {
        Request::Permits { of: PERMITS, lease: ms(lease), timeout: timeout.map(ms) }
    }

    fn get_permits(&mut self, lease: u64, permits: u64) -> Ending {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let again = self.random.percent(50);
        let holds = if again { cmd!["HOLDS", permits] } else { Vec::new() };
        if self.random.percent(35) {
            let command = [cmd!["SEM.ACQUIRE", key, owner, permits, lease], holds].concat();
            return self.client.call(&key, &owner, &Self::wants_permits(lease, None), &command);
        }
        let timeout = self.timeout();
        let command = [cmd!["SEM.WAIT", key, owner, permits, lease, timeout], holds].concat();
        self.wait_for(&Wish {
            request: Self::wants_permits(lease, Some(timeout)),
            command,
            timeout,
            may_be_lost: lease != LONG_MS,
            may_be_repeated: lease != LONG_MS && again,
        })
    }

    /// Renews, takes more, gives a part back, and repeats some of it.
    fn use_permits(&mut self, lease: u64, permits: u64) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let mut held = permits;
        for _ in 0..self.random.below(4) {
            let other = *self.random.pick(&LEASES_MS);
            let (request, command, then) = match self.random.below(3) {
                0 => {
                    let renew = cmd!["SEM.RENEW", key, owner, lease];
                    (Request::Renew { lease: ms(lease) }, renew, held)
                }
                1 if held > 1 => {
                    let release = cmd!["SEM.RELEASE", key, owner, "HOLDS", held - 1];
                    (Request::ReleasePermits, release, held - 1)
                }
                _ if held < PERMITS => {
                    let more = cmd!["SEM.ACQUIRE", key, owner, 1, other, "HOLDS", held + 1];
                    (Self::wants_permits(other, None), more, held + 1)
                }
                _ => continue,
            };
            for _ in 0..=u64::from(self.random.percent(30)) {
                match self.client.call(&key, &owner, &request, &command) {
                    Ending::Done(_) => held = then,
                    // It did not get more, and has what it had.
                    Ending::Refused if matches!(request, Request::Permits { .. }) => break,
                    Ending::Refused => return,
                    Ending::Failed | Ending::Unknown => return self.give_all_back(),
                }
            }
        }
        self.dwell();
        if lease == LONG_MS || self.random.percent(80) {
            let release = cmd!["SEM.RELEASE", key, owner, "ALL"];
            let ending = if self.random.percent(15) {
                self.release_to_the_dead(&Request::ReleasePermits, &release)
            } else {
                self.client.call(&key, &owner, &Request::ReleasePermits, &release)
            };
            if matches!(ending, Ending::Failed | Ending::Unknown) {
                self.give_all_back();
            }
        }
    }

    fn give_all_back(&mut self) {
        let release = cmd!["SEM.RELEASE", self.key, self.owner, "ALL"];
        self.insist(&Request::ReleasePermits, &release);
    }

    fn meddle_with_permits(&mut self) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let renew = cmd!["SEM.RENEW", key, owner, 30];
        self.client.call(&key, &owner, &Request::Renew { lease: ms(30) }, &renew);
        let release = cmd!["SEM.RELEASE", key, owner];
        self.client.call(&key, &owner, &Request::ReleasePermits, &release);
    }
}
