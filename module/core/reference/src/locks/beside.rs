//! Events in the model other than commands. For example, time passes, clients disconnect, and other
//! clients change keys.

use kvlock_core::{Cause, Now};

use super::meddling::Meddling;
use super::naive::{Grant, Naive, Sent, Wait, What};
use super::names::Key;

impl Naive {
    /// Removes from all queues the waits for which `goes` is true.
    fn take_out(&mut self, goes: impl Fn(&Wait) -> bool) -> Vec<Wait> {
        let queues = self.locks.iter_mut().map(|lock| &mut lock.queue);
        queues.flat_map(|queue| queue.extract_if(.., |wait| goes(wait))).collect()
    }

    pub fn disconnect(&mut self, place: usize) -> Vec<Sent> {
        let gone = self.take_out(|wait| wait.place == place);
        self.counters.disconnects += gone.len() as u64;
        told(gone)
    }

    /// Dismisses all waiters of one lock, or of all locks.
    pub fn dismiss(&mut self, key: Option<Key>) -> Vec<Sent> {
        match key {
            Some(key) => told(std::mem::take(&mut self.locks[key].queue)),
            None => told(self.take_out(|_| true)),
        }
    }

    /// Ends all waits whose timeout has passed, earliest end first.
    pub fn time_out(&mut self) -> Vec<Sent> {
        let mono = self.now.mono.0;
        let mut over = self.take_out(|wait| wait.end.is_some_and(|end| end <= mono));
        over.sort_by_key(|wait| (wait.end, wait.place));
        self.counters.timeouts += over.len() as u64;
        told(over)
    }

    /// Looks at a lock. Grants it to the waiters at the head, if possible.
    pub fn look(&mut self, key: Key, cause: Cause) -> Vec<Sent> {
        self.begin_next_moment(key, cause);
        if !self.owes(key) {
            return Vec::new();
        }
        let told = match self.locks[key].what {
            What::Shared(stored) if self.locks[key].queue[0].shared => {
                let token = stored.unwrap_or_else(|| self.next_token(None));
                let told = self.let_in(key, token);
                if !told.is_empty() {
                    self.locks[key].what = What::Shared(Some(token));
                }
                told
            }
            What::Shared(stored) | What::Free(stored) => {
                self.hand_to_head(key, stored).unwrap_or_default()
            }
            What::Held { .. } | What::Other => Vec::new(),
        };
        if cause == Cause::Expiry {
            self.counters.handed_off_by_expiry += told.len() as u64;
        }
        told
    }

    pub fn delivered(&mut self, grant: usize) {
        self.grants[grant].settled = true;
    }

    /// Takes a grant back and passes the lock on. Does nothing if the grant's reply was written or the
    /// owner has used the grant since, or if the owner no longer holds the lock with the grant's token.
    pub fn take_back(&mut self, grant: usize) -> Vec<Sent> {
        let Grant { key, owner, token, settled, .. } = self.grants[grant];
        self.delivered(grant);
        let (is_that_one, shared) = match self.locks[key].what {
            What::Held { owner: holder, token: held, .. } => {
                (holder == owner && held == Some(token), false)
            }
            What::Shared(held) => {
                (held == Some(token) && self.share_of(key, owner).is_some(), true)
            }
            What::Free(_) | What::Other => (false, false),
        };
        if !is_that_one || settled {
            return Vec::new();
        }
        self.counters.grants_taken_back += 1;
        if shared {
            self.stop_sharing(key, owner, Some(token), false)
        } else {
            self.pass_on(key, Some(token))
        }
    }

    /// Sets the time, and frees the locks whose keys have expired by then.
    pub fn pass(&mut self, now: Now) {
        self.now = now;
        let wall = self.wall();
        for lock in &mut self.locks {
            if lock.until.is_some_and(|until| until < wall) {
                lock.lapsed |= !matches!(lock.what, What::Free(_));
                lock.what = What::Free(None);
                lock.shares.clear();
                lock.until = None;
            }
        }
    }

    /// Applies another client's change of a key.
    pub fn meddle(&mut self, key: Key, meddling: &Meddling) {
        let (us, wall) = (self.now.unix_us, self.wall());
        let lock = &mut self.locks[key];
        match (*meddling, &mut lock.what) {
            (Meddling::Delete, _) => (lock.what, lock.until) = (What::Free(None), None),
            (Meddling::Overwrite, _) => (lock.what, lock.until) = (What::Other, None),
            (Meddling::Persist, _) => lock.until = None,
            (Meddling::Expire(_), What::Free(_)) => {}
            (Meddling::Expire(ms), _) => lock.until = Some(wall + ms),
            (Meddling::Script(owner, holds, lease), _) => {
                lock.until = Some(wall + lease);
                lock.what = What::Held { owner, holds, shared: 0, token: None };
            }
            (Meddling::DropHolder, What::Held { token, .. }) => lock.what = What::Free(*token),
            (Meddling::SwapHolder(new), What::Held { owner, holds, .. }) => {
                (*owner, *holds) = (new, 1);
            }
            (Meddling::TokenAhead(by), What::Held { token, .. }) => *token = Some(us + by),
            (Meddling::TokenSpoilt(_), What::Held { token, .. }) => *token = None,
            (Meddling::SecondField(_) | Meddling::CountSpoilt(_), What::Held { .. }) => {
                lock.what = What::Other;
            }
            // The other changes need an exclusive holder.
            _ => {}
        }
        if !matches!(lock.what, What::Shared(_)) {
            lock.shares.clear();
        }
        lock.lapsed &= matches!(lock.what, What::Free(_));
    }
}

fn told(out: Vec<Wait>) -> Vec<Sent> {
    out.into_iter().map(|wait| Sent::Out(wait.client)).collect()
}
