//! The model of releases, renewals, forced releases and cancelled waits.

use kvlock_core::Release;

use super::naive::{Answer, Naive, Outcome, Sent, What};
use super::names::{Key, Owner, ResultKey};

impl Naive {
    pub fn release(
        &mut self,
        key: Key,
        by: Owner,
        shared: bool,
        how_many: Release,
        store: Option<ResultKey>,
    ) -> Outcome {
        let (had, token) = match (self.locks[key].what, shared) {
            (What::Other, _) => return (Answer::NotALock, Vec::new()),
            (What::Held { owner, holds, token, .. }, false) if owner == by => (holds, token),
            (What::Held { owner, shared, token, .. }, true) if owner == by && shared > 0 => {
                (shared, token)
            }
            (What::Shared(token), true) if self.share_of(key, by).is_some() => {
                (self.locks[key].shares[by].0, token)
            }
            _ => return (Answer::Nil, Vec::new()),
        };
        let left = match how_many {
            Release::One => had - 1,
            Release::All => 0,
            Release::DownTo(n) if n == had || n + 1 == had => n,
            Release::DownTo(_) => return (Answer::Mismatch, Vec::new()),
        };
        self.settle(key, by, token);
        if let Some(result) = store {
            self.set_result(key, result, true);
        }
        if left == had {
            self.counters.repeated += 1;
            return (Answer::Left(left), Vec::new());
        }
        let told = self.leave_with(key, by, shared, left);
        (Answer::Left(left), told)
    }

    pub fn renew(&mut self, key: Key, by: Owner, lease: u64, ahead: Option<i64>) -> Answer {
        let end = self.wall() + lease;
        let at_least = ahead.map(|us| self.now.unix_us.saturating_add_signed(us));
        match self.locks[key].what {
            What::Other => return Answer::NotALock,
            What::Held { owner, holds, shared, token } if owner == by => {
                let raised = match at_least.map(|wanted| self.raised(token, wanted)) {
                    None => token,
                    Some(Ok(raised)) => raised,
                    Some(Err(answer)) => return answer,
                };
                self.settle(key, by, token);
                self.locks[key].what = What::Held { owner, holds, shared, token: raised };
                self.locks[key].until = Some(end);
            }
            What::Shared(_) if self.share_of(key, by).is_some() && ahead.is_some() => {
                return Answer::Upgrade;
            }
            What::Shared(token) if self.share_of(key, by).is_some() => {
                self.settle(key, by, token);
                let lock = &mut self.locks[key];
                lock.shares.get_mut(by).unwrap().1 = end;
                lock.until = lock.until.map(|until| until.max(end));
            }
            What::Free(_) | What::Held { .. } | What::Shared(_) => return Answer::Nil,
        }
        Answer::Lease(lease)
    }

    pub fn force(&mut self, key: Key) -> Outcome {
        let token = match self.locks[key].what {
            What::Other => return (Answer::NotALock, Vec::new()),
            What::Held { token, .. } => token,
            What::Shared(token) if self.last_end(key).is_some() => token,
            What::Shared(_) | What::Free(_) => return (Answer::No, Vec::new()),
        };
        self.counters.forced_releases += 1;
        (Answer::Yes, self.pass_on(key, token))
    }

    pub fn cancel(&mut self, key: Key, owner: Owner) -> Outcome {
        let queue = &mut self.locks[key].queue;
        let Some(place) = queue.iter().position(|wait| wait.owner == owner) else {
            return (Answer::No, Vec::new());
        };
        self.counters.cancelled += 1;
        (Answer::Yes, vec![Sent::Out(queue.remove(place).client)])
    }
}
