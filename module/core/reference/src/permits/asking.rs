//! Requests of owners for permits, and the expected replies.

use kvlock_core::{
    Acquire, Cause, Full, Join, Millis, Permits, PermitsChange, Release, ReleaseReply, RenewReply,
    TakeReply, WaitReply, Want,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::ops::{Owner, Request};
use super::world::{Key, Wait, World};

impl World {
    pub fn set(&mut self, limit: u64, only_new: bool) -> TestCaseResult {
        let (set, change) = self.table.set_permits(&self.at(""), limit, only_new);
        let (expected, writes) = match self.key {
            Key::Other { .. } => (None, false),
            Key::Unset => (Some(true), true),
            Key::Set { .. } if only_new => (Some(false), false),
            // The number that is set already is not written again.
            Key::Set { limit: old, .. } => (Some(true), old != limit),
        };
        let written = if writes { PermitsChange::Limit(limit) } else { PermitsChange::None };
        prop_assert_eq!((set, change), (expected, written));
        if self.write("", change)? { self.serve(Cause::Release) } else { Ok(()) }
    }

    /// Returns the expected reply to taking permits.
    fn expected(&self, request: Request) -> TakeReply {
        let Request { owner, permits, holds, .. } = request;
        let had = self.of(owner).map_or(0, |(permits, _)| permits);
        match (&self.key, holds) {
            (Key::Unset, _) => TakeReply::Unset,
            (Key::Other { .. }, _) => TakeReply::NotASemaphore,
            (_, Some(n)) if n == had => TakeReply::Holds(had),
            (_, Some(n)) if n != had + permits => TakeReply::Mismatch,
            (Key::Set { limit, .. }, _) if had + permits > *limit => TakeReply::TooMany,
            _ if !self.waits.is_empty() || self.free() < permits => TakeReply::Refused,
            _ if self.in_quarantine() => TakeReply::Refused,
            _ => TakeReply::Holds(had + permits),
        }
    }

    pub fn take(&mut self, request: Request) -> TestCaseResult {
        let expected = self.expected(request);
        let at = self.at_with(request.owner, request.permits);
        let (reply, change) = self.table.take_permits(&at, request.permits, &asked(request));
        prop_assert_eq!(reply, expected);
        self.counters.refused += u64::from(reply == TakeReply::Refused);
        self.taken(request.owner, request.lease, expected, change)
    }

    pub fn wait(&mut self, request: Request, timeout: Option<u64>) -> TestCaseResult {
        let expected = self.expected(request);
        let Request { owner, permits, lease, holds } = request;
        let at = self.at_with(owner, permits);
        let (reply, change) = self.table.wait_for_permits(&at, permits, &asked(request), None);
        if expected != TakeReply::Refused {
            prop_assert_eq!(reply, WaitReply::Now(expected));
            return self.taken(owner, lease, expected, change);
        }
        let place = self.waits.iter().position(|wait| wait.owner == owner);
        let limits = self.table.limits;
        let full = self.waits.len() >= limits.waiters.min(limits.waiters_per_key);
        if full && place.is_none() {
            prop_assert_eq!(
                (reply, change),
                (WaitReply::QueueFull(Full::Server), PermitsChange::None)
            );
            return Ok(());
        }
        prop_assert_eq!((reply, change), (WaitReply::Block, PermitsChange::None));
        self.clients += 1;
        let (want, end) = (asked(request).want, timeout.map(|ms| self.now + ms));
        let (by, lease_ms, timeout) = (owner.as_bytes(), Millis(lease), timeout.map(Millis));
        let join = Join { owner: by, want, lease: lease_ms, timeout };
        let (id, replaced) = self.table.enqueue(&at, &join, self.clients);
        let wait = Wait { owner, permits, holds, lease, client: self.clients, id, end };
        let old = match place {
            Some(place) => {
                prop_assert_eq!(self.waits[place].id, id);
                Some(std::mem::replace(&mut self.waits[place], wait).client)
            }
            None => {
                self.waits.push(wait);
                None
            }
        };
        prop_assert_eq!(replaced, old);
        Ok(())
    }

    pub fn drain(&mut self, owner: Owner, lease: u64, holds: Option<u64>) -> TestCaseResult {
        let had = self.of(owner).map_or(0, |(permits, _)| permits);
        let at = self.at_with(owner, Permits::MAX);
        let free = self.free();
        let expected = match (&self.key, holds) {
            (Key::Unset, _) => TakeReply::Unset,
            (Key::Other { .. }, _) => TakeReply::NotASemaphore,
            (_, Some(n)) if n <= had => TakeReply::Holds(had),
            (_, Some(n)) if n > had + 1 => TakeReply::Mismatch,
            _ if !self.waits.is_empty() || free == 0 => TakeReply::Refused,
            _ if self.in_quarantine() => TakeReply::Refused,
            _ => TakeReply::Holds(had + free),
        };
        let want = Want::Permits { more: Permits::MAX, holds };
        let request = Acquire { owner: owner.as_bytes(), want, lease: Millis(lease), holds };
        let (reply, change) = self.table.drain_permits(&at, &request);
        prop_assert_eq!(reply, expected);
        self.counters.refused += u64::from(reply == TakeReply::Refused);
        self.taken(owner, lease, expected, change)
    }

    /// Applies and checks the change of a request for permits. The request must not shorten a lease.
    fn taken(
        &mut self,
        owner: Owner,
        lease: u64,
        reply: TakeReply,
        change: PermitsChange,
    ) -> TestCaseResult {
        let TakeReply::Holds(holds) = reply else {
            prop_assert_eq!(change, PermitsChange::None);
            return Ok(());
        };
        let (had, until) = self.of(owner).unwrap_or((0, 0));
        let end = until.max(self.now + lease);
        if (had, until) == (holds, end) {
            prop_assert_eq!(change, PermitsChange::None, "nothing new is written");
        }
        self.write(owner, change)?;
        prop_assert_eq!(self.of(owner), Some((holds, end)));
        self.touch(owner);
        if had == holds {
            self.counters.repeated += 1;
        } else {
            self.counters.granted += 1;
        }
        Ok(())
    }

    pub fn release(&mut self, owner: Owner, release: Release) -> TestCaseResult {
        let had = self.of(owner).map(|(permits, _)| permits);
        let expected = match (&self.key, had, release) {
            (Key::Other { .. }, ..) => ReleaseReply::NotALock,
            (_, None, _) => ReleaseReply::NotHeld,
            (_, Some(had), Release::One) => ReleaseReply::Left(had - 1),
            (_, Some(_), Release::All) => ReleaseReply::Left(0),
            (_, Some(had), Release::DownTo(n)) if n <= had => ReleaseReply::Left(n),
            (_, Some(_), Release::DownTo(_)) => ReleaseReply::Mismatch,
        };
        let at = self.at(owner);
        let (reply, change) = self.table.release_permits(&at, owner.as_bytes(), release);
        prop_assert_eq!(reply, expected);
        let frees = self.write(owner, change)?;
        if let ReleaseReply::Left(left) = expected {
            prop_assert_eq!(self.of(owner).map_or(0, |(permits, _)| permits), left);
            self.touch(owner);
            if had == Some(left) {
                prop_assert_eq!(change, PermitsChange::None);
                self.counters.repeated += 1;
            } else if left == 0 {
                self.counters.released += 1;
            }
        }
        if frees { self.serve(Cause::Release) } else { Ok(()) }
    }

    pub fn renew(&mut self, owner: Owner, lease: u64) -> TestCaseResult {
        let at = self.at(owner);
        let (reply, change) = self.table.renew_permits(&at, owner.as_bytes(), Millis(lease));
        let had = self.of(owner);
        let expected = match (&self.key, had) {
            (Key::Other { .. }, _) => RenewReply::NotALock,
            (_, None) => RenewReply::NotHeld,
            (_, Some(_)) => RenewReply::Lease(Millis(lease)),
        };
        prop_assert_eq!(reply, expected);
        self.write(owner, change)?;
        if let Some((permits, _)) = had {
            prop_assert_eq!(self.of(owner), Some((permits, self.now + lease)));
            self.touch(owner);
        }
        Ok(())
    }
}

fn asked(request: Request) -> Acquire<'static> {
    let Request { owner, permits, lease, holds } = request;
    let want = Want::Permits { more: permits, holds };
    Acquire { owner: owner.as_bytes(), want, lease: Millis(lease), holds }
}
