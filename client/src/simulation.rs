//! A door for simulations: what the holder of one lock believes, and when it renews, without a
//! connection and on whatever clock.
//!
//! It is the record that guards and watchdog go by, in `lease.rs`, with nothing added. So a
//! simulated client cannot count a lease in another way than a real one. No part of the interface
//! of this crate: the feature `simulation` is for its own tests.

use crate::engine::clock::{Caution, Clock, Moment};
use crate::engine::lease::{Duty, Lease, Parting, ShareId, Term, Terms, Turn};
use crate::engine::loss::Loss;
use crate::engine::tenure::Tenure;
use crate::wire::reply::Token;
use crate::wire::request::{GiveBack, Mode};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One owner's hold on a lock, with one guard or several.
pub struct Hold(Arc<Lease>);

/// One guard's part in a hold.
#[derive(Clone, Copy)]
pub struct Part(ShareId);

/// The right to send a command about a hold. At most one is under way.
pub struct Sole(Turn);

/// A clock's time, as [`Clock::now`] says it.
type Time = Duration;

/// What the watchdog has to do about a hold now.
#[derive(Clone, Copy, Debug)]
pub enum Due {
    /// Renew it for that long.
    Renew(Duration),
    /// Look again so much later.
    Later(Duration),
    /// Forget it.
    Done,
}

/// What a guard that goes has to tell the server.
#[derive(Clone, Copy, Debug)]
pub enum Leaving {
    /// Nothing.
    Silent,
    /// To release all; `true`: something may come after it.
    All(bool),
    /// To release down to so many holds.
    DownTo(u32),
}

/// A grant, and how it was come by.
#[derive(Clone, Debug)]
pub struct Granted {
    /// What it is measured with.
    pub clock: Arc<dyn Clock>,
    /// What [`Builder::margin`](crate::Builder::margin) sets.
    pub margin: Duration,
    /// The fencing token.
    pub token: u64,
    /// Before what set the lease was sent.
    pub sent: Time,
    /// How long the lease is.
    pub lease: Duration,
    /// Renewed, or left to end by itself.
    pub watched: bool,
    /// An earlier request of this owner may still be on its way.
    pub strays: bool,
}

impl Hold {
    /// A hold with its first guard.
    #[must_use]
    pub fn granted(grant: Granted) -> (Self, Part) {
        let Granted { clock, margin, token, sent, lease, watched, strays } = grant;
        let tenure = Tenure {
            mode: Mode::Alone,
            key: Arc::from(&b"simulated"[..]),
            owner: Arc::from("simulated"),
            token: Token::from(token),
            raised: false,
        };
        let terms = Terms { clock, caution: Caution { margin } };
        let term = Term { length: lease, watched };
        let (lease, share) = Lease::granted(0, tenure, &terms, moment(sent), term, strays);
        (Self(lease), Part(share))
    }

    /// How long the holder may still believe; zero if it is lost.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.0.left()
    }

    /// As `Guard::is_lost`.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// How many guards there are.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.0.holds()
    }

    /// What the watchdog has to do.
    #[must_use]
    pub fn due(&self, now: Time) -> Due {
        match self.0.duty(moment(now)) {
            Duty::Renew(length) => Due::Renew(length),
            Duty::Later(at) => Due::Later(at.left_at(moment(now))),
            Duty::Done => Due::Done,
        }
    }

    /// The right to send a command, when nobody else has it.
    pub async fn sole(&self) -> Sole {
        Sole(self.0.turn().await)
    }

    /// The right to send a renewal; none if a command is under way.
    #[must_use]
    pub fn take_up(&self) -> Option<Sole> {
        let turn = self.0.try_turn()?;
        self.0.take_up(&turn);
        Some(Sole(turn))
    }

    /// A renewal is about to be sent over that connection.
    pub fn renewing(&self, sole: &Sole, sent: Time, length: Duration, via: u64) {
        self.0.renewing(&sole.0, moment(sent), length, via);
    }

    /// The server has renewed it.
    pub fn renewed(&self, sole: &Sole, sent: Time, length: Duration, now: Time) {
        self.0.renewed(&sole.0, moment(sent), length, moment(now));
    }

    /// The server has answered that it did nothing.
    pub fn refused(&self, sole: &Sole) {
        self.0.refused(&sole.0);
    }

    /// It has not, or nobody knows.
    pub fn not_renewed(&self, sole: &Sole, length: Duration, now: Time) {
        self.0.not_renewed(&sole.0, length, moment(now));
    }

    /// Another guard, asked for at `sent`; none if it was lost meanwhile. Whether it `counts` is up
    /// to the replicas.
    #[must_use]
    pub fn reentered(
        &self,
        sole: &Sole,
        sent: Time,
        lease: Duration,
        counts: bool,
    ) -> Option<Part> {
        let term = Term { length: lease, watched: true };
        self.0.reentered(&sole.0, moment(sent), term, counts).map(Part)
    }

    /// A guard is gone, and has yet to leave.
    pub fn abandon(&self, part: Part) {
        self.0.abandon(part.0);
    }

    /// Something may have been carried out, or may be yet, that nobody waits for.
    pub fn strayed(&self) {
        self.0.strayed();
    }

    /// The longest lease that a guard wants.
    #[must_use]
    pub fn longest(&self, now: Time) -> Option<Duration> {
        self.0.longest(moment(now))
    }

    /// Gives a part another length. What is to be asked for then.
    #[must_use]
    pub fn change(&self, sole: &Sole, part: Part, sent: Time, length: Duration) -> Duration {
        self.0.change(&sole.0, part.0, moment(sent), length).0
    }

    /// The server has said that it is lost, or the client has found out.
    pub fn lose(&self, told: bool) {
        self.0.lose(told, Loss::Gone);
    }

    /// A guard goes.
    #[must_use]
    pub fn leave(&self, sole: &Sole, part: Part) -> Leaving {
        match self.0.leave(&sole.0, part.0) {
            Parting::Silent => Leaving::Silent,
            Parting::Release { give_back: GiveBack::DownTo(left), .. } => Leaving::DownTo(left),
            Parting::Release { give_back: GiveBack::All | GiveBack::One, strays } => {
                Leaving::All(strays)
            }
        }
    }
}

fn moment(time: Time) -> Moment {
    Moment::LONG_AGO.after(time)
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("left", &self.left()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Sole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sole").finish_non_exhaustive()
    }
}
