//! The contract of what is bound once more, with lists and loops.

pub const KEYS: usize = 2;
pub const OWNERS: [&str; 3] = ["ann", "bob", "cat"];
pub const SESSIONS: usize = 2;

/// Who has a lock. Sessions go by the how manieth they are.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    pub owner: usize,
    pub bound: Option<u64>,
    /// Its session is gone, and so it is to be released.
    pub is_orphan: bool,
    /// The session that has not told its client of the grant, and the owner has not used it.
    pub untold: Option<u64>,
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
    /// Until when its reader is blocked, or it lives without one.
    pub due: u64,
    pub reads: bool,
    /// When the call was sent that is not answered yet.
    pub sent: u64,
    /// Until when the client believes in what is bound.
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
                let (bound, untold) = (bound.then_some(session), Some(session));
                *holder = Some(Holder { owner, bound, is_orphan: false, untold });
            }
        }
    }

    /// The owner shows that it relies on what it has; says whether it has something.
    pub fn uses(&mut self, key: usize, owner: usize) -> Option<&mut Holder> {
        let holder = self.holders[key].as_mut().filter(|holder| holder.owner == owner)?;
        holder.untold = None;
        if std::mem::take(&mut holder.is_orphan) {
            holder.bound = None;
        }
        Some(holder)
    }

    /// A reader is answered, and told of all there is.
    pub fn answer(&mut self, number: usize) {
        let Some(session) = &mut self.sessions[number] else { return };
        (session.reads, session.due) = (false, self.now + session.ttl);
        session.believes = session.believes.max(session.sent + session.ttl);
        let generation = Some(session.generation);
        for holder in self.holders.iter_mut().flatten() {
            holder.untold = holder.untold.filter(|_| holder.untold != generation);
        }
    }

    /// A session is gone: its waits leave, what nobody was told of is taken back, and what is bound to
    /// it is to be released, unless the lease is to count.
    pub fn end(&mut self, number: usize, forget: bool) {
        let Some(session) = self.sessions[number].take() else { return };
        let gone = Some(session.generation);
        self.queues.iter_mut().for_each(|queue| queue.retain(|wait| Some(wait.session) != gone));
        for holder in &mut self.holders {
            let Some(it) = holder else { continue };
            if it.untold == gone {
                *holder = None;
            } else if it.bound == gone && forget {
                it.bound = None;
            } else if it.bound == gone {
                it.is_orphan = true;
            }
        }
    }
}
