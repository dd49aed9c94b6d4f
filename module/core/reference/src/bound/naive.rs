//! A simple model of bound locks.

pub const KEYS: usize = 2;
pub const OWNERS: [&str; 3] = ["ann", "bob", "cat"];
pub const SESSIONS: usize = 2;

/// The holder of a lock. Sessions are named by their number in order of opening.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    pub owner: usize,
    pub bound: Option<u64>,
    /// `true` if the session in `bound` has ended, so that the lock must be released.
    pub is_orphan: bool,
    /// The session through which the lock was granted, until the session has sent the grant or the
    /// owner has used it.
    pub unsent: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub owner: usize,
    pub session: u64,
    pub bound: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Session {
    pub generation: u64,
    pub ttl: u64,
    /// Time at which the timeout of its blocked reader passes, or at which the session ends.
    pub due: u64,
    pub reads: bool,
    /// Time at which the latest `SESSION.NEXT` call was sent.
    pub sent: u64,
    /// Time until which the client relies on its bound locks.
    pub believes: u64,
}

#[derive(Debug, Default)]
pub struct Naive {
    pub holders: [Option<Holder>; KEYS],
    pub queues: [Vec<Wait>; KEYS],
    pub sessions: [Option<Session>; SESSIONS],
    pub generations: u64,
    pub now: u64,
}

impl Naive {
    pub fn serve(&mut self) {
        for (holder, queue) in self.holders.iter_mut().zip(&mut self.queues) {
            if holder.is_none() && !queue.is_empty() {
                let Wait { owner, session, bound } = queue.remove(0);
                let (bound, unsent) = (bound.then_some(session), Some(session));
                *holder = Some(Holder { owner, bound, is_orphan: false, unsent });
            }
        }
    }

    /// Records that the owner relies on its lock. Returns the record of the lock, if the owner
    /// holds it.
    pub fn uses(&mut self, key: usize, owner: usize) -> Option<&mut Holder> {
        let holder = self.holders[key].as_mut().filter(|holder| holder.owner == owner)?;
        holder.unsent = None;
        if std::mem::take(&mut holder.is_orphan) {
            holder.bound = None;
        }
        Some(holder)
    }

    /// Replies to a reader with all outcomes of its session.
    pub fn answer(&mut self, number: usize) {
        let Some(session) = &mut self.sessions[number] else { return };
        (session.reads, session.due) = (false, self.now + session.ttl);
        session.believes = session.believes.max(session.sent + session.ttl);
        let generation = Some(session.generation);
        for holder in self.holders.iter_mut().flatten() {
            holder.unsent = holder.unsent.filter(|_| holder.unsent != generation);
        }
    }

    /// Ends a session. Its waits leave and its unsent grants are taken back. Locks bound to it
    /// become orphans. With `forget`, they stay until their leases end instead.
    pub fn end(&mut self, number: usize, forget: bool) {
        let Some(session) = self.sessions[number].take() else { return };
        let gone = Some(session.generation);
        self.queues.iter_mut().for_each(|queue| queue.retain(|wait| Some(wait.session) != gone));
        for holder in &mut self.holders {
            let Some(it) = holder else { continue };
            if it.unsent == gone {
                *holder = None;
            } else if it.bound == gone && forget {
                it.bound = None;
            } else if it.bound == gone {
                it.is_orphan = true;
            }
        }
    }
}
