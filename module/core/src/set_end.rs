//! Releases and renewals of all locks of a set together. If one lock has an error, no lock is
//! changed. A lock that the owner no longer holds is no error: the others are released or renewed.
//! In a release, a key that is no longer a lock counts as a lock that is not held.

use crate::change::Change;
use crate::lock::{Release, ReleaseReply, RenewReply};
use crate::mode::Want;
use crate::observed::Observed;
use crate::set::Member;
use crate::table::Table;
use crate::token::Token;
use crate::types::Millis;

impl Member<'_> {
    /// The mode in which the owner of a set holds this lock.
    fn want(&self, want: Want) -> Want {
        if self.under { Want::Shared } else { want }
    }

    /// Returns whether an owner holds this lock of its set.
    #[must_use]
    pub fn is_held_by(&self, owner: &[u8], want: Want) -> bool {
        self.at.holds_of(owner, self.want(want)).is_some_and(|holds| holds > 0)
    }
}

/// Returns whether a release does not match the holds of a set's owner. `HOLDS n` must match each
/// lock that the owner holds, except the locks of `UNDER`.
#[must_use]
pub fn mismatches(members: &[Member<'_>], owner: &[u8], want: Want, release: Release) -> bool {
    let mut counted = members.iter().filter(|member| !member.under);
    counted.any(|member| member.at.mismatches(owner, want, release))
}

impl<P> Table<P> {
    /// Releases all locks of a set that the owner holds. Returns a change for each lock. If `HOLDS
    /// n` does not match, releases none and returns no changes. If the owner has lost a lock of the
    /// set, the reply is the one for that lock. Otherwise the reply is the one for the first lock.
    pub fn release_set(
        &mut self,
        members: &[Member<'_>],
        owner: &[u8],
        want: Want,
        release: Release,
    ) -> (ReleaseReply, Vec<Change<P>>) {
        if mismatches(members, owner, want, release) {
            return (ReleaseReply::Mismatch, Vec::new());
        }
        let was_sampled = self.is_quiet();
        let is_relative = !matches!(release, Release::DownTo(_));
        // With `HOLDS n`, the locks of `UNDER` lose a hold only if the first lock loses one.
        let (mut first, mut lost, mut goes_down) = (None, None, is_relative);
        let mut changes = Vec::with_capacity(members.len());
        for member in members {
            if member.under && !goes_down {
                changes.push(Change::None);
                continue;
            }
            let part = if member.under && !is_relative { Release::One } else { release };
            let want = member.want(want);
            let had = member.at.holds_of(owner, want);
            let (reply, change) = self.release_member(&member.at, owner, want, part, was_sampled);
            changes.push(change);
            match reply {
                ReleaseReply::Left(left) => {
                    goes_down |= first.is_none() && had.is_some_and(|had| left < had);
                }
                ReleaseReply::NotALock => lost = Some(reply),
                ReleaseReply::NotHeld | ReleaseReply::Mismatch => lost = lost.or(Some(reply)),
            }
            first = first.or(Some(reply));
        }
        (lost.or(first).unwrap_or(ReleaseReply::NotHeld), changes)
    }

    /// Renews those locks of a set that the owner holds. The token and the value do not apply to
    /// the locks of `UNDER`.
    pub fn renew_set(
        &mut self,
        members: &[Member<'_>],
        owner: &[u8],
        (lease, at_least): (Millis, Option<Token>),
        value: Option<&[u8]>,
    ) -> (RenewReply, Vec<Change<P>>) {
        // All locks are checked first, so that an error changes nothing.
        let mut refusals = members
            .iter()
            .filter_map(|member| self.refuses_renewal(member, owner, at_least, value));
        if let Some(refusal) = refusals.next() {
            return (refusal, Vec::new());
        }
        let mut of_all = RenewReply::Lease(lease);
        let mut changes = Vec::with_capacity(members.len());
        for member in members {
            let (reply, change) = if member.under {
                self.renew(&member.at, owner, lease, None)
            } else {
                self.renew_with_value(&member.at, owner, (lease, at_least), value)
            };
            if reply == RenewReply::NotHeld {
                of_all = reply;
            }
            changes.push(change);
        }
        (of_all, changes)
    }

    /// Returns the error of a renewal for one lock of a set, if there is one.
    fn refuses_renewal(
        &self,
        member: &Member<'_>,
        owner: &[u8],
        at_least: Option<Token>,
        value: Option<&[u8]>,
    ) -> Option<RenewReply> {
        match &member.at.seen {
            Observed::NotALock { .. } => Some(RenewReply::NotALock),
            Observed::Shared(sharing) if !member.under => {
                let asks = at_least.is_some() || value.is_some();
                let shares = sharing.share_of(owner, member.at.now.unix()).is_some();
                (asks && shares).then_some(RenewReply::Shared)
            }
            Observed::Held(holding) if !member.under && holding.owner == owner => {
                self.token_to_raise(&member.at, holding.token, at_least).err()
            }
            Observed::Free { .. } | Observed::Shared(_) | Observed::Held(_) => None,
        }
    }
}
