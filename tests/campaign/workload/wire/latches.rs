//! Actions of clients on a latch: set it, count it down, wait for it.

use super::client::Ending;
use super::locks::{Worker, ms};
use super::waits::Wish;
use harness::cmd;
use harness::history::Request;

/// Some latches never open, so each wait has a limit.
const TIMEOUTS_MS: [u64; 5] = [20, 60, 150, 400, 1500];

impl Worker<'_> {
    pub(super) fn turn_at_latch(&mut self) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let ending = match self.random.below(100) {
            0..=24 => {
                let count = 1 + self.random.below(4);
                let set = cmd!["LATCH.SET", key, count];
                self.client.call(&key, &owner, &Request::SetLatch { count }, &set)
            }
            25..=64 => {
                let count = cmd!["LATCH.COUNTDOWN", key, owner];
                let again = self.random.percent(30);
                let first = self.client.call(&key, &owner, &Request::CountDown, &count);
                match first {
                    Ending::Done | Ending::Unknown if again => {
                        self.client.call(&key, &owner, &Request::CountDown, &count)
                    }
                    _ => first,
                }
            }
            _ => {
                let timeout = *self.random.pick(&TIMEOUTS_MS);
                let ending = self.wait_for(&Wish {
                    request: Request::AwaitLatch { timeout: ms(timeout) },
                    command: cmd!["LATCH.WAIT", key, owner, timeout],
                    timeout,
                    may_be_lost: true,
                    may_be_repeated: true,
                });
                if matches!(ending, Ending::Done) {
                    self.granted();
                }
                ending
            }
        };
        if ending == Ending::Failed {
            self.client.reconnect();
        }
    }
}
