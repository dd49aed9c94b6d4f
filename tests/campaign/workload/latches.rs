//! Count-down latches: a waiter is released when the latch's whole count has been counted down, and not
//! before.

use super::{Tasks, Turn, Work};
use harness::history::{Outcome, Request};
use std::time::Duration;
use tokio::time::sleep;

/// Count of each latch.
const COUNT: u32 = 3;

/// Time for which all tasks that draw the same key use the same latch.
const MEETING: Duration = Duration::from_millis(300);

/// A latch that is not counted down to zero expires after this time.
const LIFETIME: Duration = Duration::from_secs(60);

pub(crate) const LATCHES: Work =
    Work { name: "latches", tasks: Tasks::Turns(|turn| Box::pin(turn.at_latch())) };

impl Turn<'_> {
    /// Sets the latch if it does not exist. Then counts it down, sometimes twice, or waits for it.
    async fn at_latch(self) {
        let meeting = self.round.recorder.now().as_millis() / MEETING.as_millis();
        let key = format!("{}-latch{meeting}", self.random.pick(&self.round.keys));
        self.set(&key).await;
        sleep(Duration::from_millis(self.random.below(20))).await;
        if self.random.percent(60) {
            self.count(&key).await;
            if self.random.percent(30) {
                self.count(&key).await;
            }
        } else {
            let timeout = Duration::from_millis(20 + self.random.below(3000));
            self.wait(&key, timeout).await;
        }
    }

    async fn set(&self, key: &str) {
        let latch = self.route.client().latch(key);
        let request = Request::SetLatch { count: COUNT.into() };
        let call = self.round.recorder.sent(key, &self.owner, request);
        let outcome = match latch.set_for(COUNT, LIFETIME).await {
            Ok(true) => Outcome::Done,
            Ok(false) => Outcome::Refused,
            Err(trouble) => self.failed("set a latch", &trouble),
        };
        self.round.recorder.answered(call, outcome);
    }

    async fn count(&self, key: &str) {
        let latch = self.route.client().latch(key);
        let call = self.round.recorder.sent(key, &self.owner, Request::CountDown);
        let outcome = match latch.count_down_as(&self.owner).await {
            Ok(Some(left)) => Outcome::Released { left },
            // There is no latch. If the call was repeated after a cut, its first attempt may have opened it.
            Ok(None) => Outcome::Unknown,
            Err(trouble) => self.failed("count down", &trouble),
        };
        self.round.recorder.answered(call, outcome);
        self.round.log.add("counted down", 1);
    }

    async fn wait(&self, key: &str, timeout: Duration) {
        let latch = self.route.client().latch(key);
        let call = self.round.recorder.sent(key, &self.owner, Request::AwaitLatch { timeout });
        let outcome = match latch.wait_within(timeout).await {
            Ok(true) => {
                self.round.granted(&self.owner);
                Outcome::Done
            }
            Ok(false) => Outcome::Refused,
            Err(trouble) => self.failed("wait for a latch", &trouble),
        };
        self.round.recorder.answered(call, outcome);
    }

    /// Records an error. The call may have taken effect or not.
    fn failed(&self, what: &str, trouble: &kvlock::Error) -> Outcome {
        self.round.log.trouble(what, trouble);
        Outcome::Unknown
    }
}
