//! Text of replies, changes and counters in transcripts.

use kvlock_core::{
    AcquireReply, Cause, Change, Changed, Counters, HolderState, Holding, Millis, Now, Observed,
    ReleaseReply, RenewReply, Share, Sharers, Sharing, Token, UnixMillis, VersionedState,
};

use kvlock_core_reference::sim::Name;

pub(crate) fn key(name: &Name) -> String {
    match name {
        (0, key) => key.clone(),
        (db, key) => format!("{key} (db {db})"),
    }
}

pub(crate) fn acquired(reply: AcquireReply) -> String {
    match reply {
        AcquireReply::Granted { token, holds } => {
            format!("granted, token {}, holds {holds}", token.value())
        }
        AcquireReply::Refused => "nil".to_owned(),
        AcquireReply::Mismatch => "MISMATCH".to_owned(),
        AcquireReply::TooManyHolds => "too many holds".to_owned(),
        AcquireReply::Upgrade => "UPGRADE".to_owned(),
        AcquireReply::NotALock => "WRONGTYPE".to_owned(),
        AcquireReply::TryAgain => "TRYAGAIN".to_owned(),
    }
}

pub(crate) fn released(reply: ReleaseReply) -> String {
    match reply {
        ReleaseReply::Left(holds) => format!("holds left {holds}"),
        ReleaseReply::NotHeld => "nil".to_owned(),
        ReleaseReply::Mismatch => "MISMATCH".to_owned(),
        ReleaseReply::NotALock => "WRONGTYPE".to_owned(),
    }
}

pub(crate) fn renewed(reply: RenewReply) -> String {
    match reply {
        RenewReply::Lease(Millis(lease)) => format!("lease {lease}"),
        RenewReply::NotHeld => "nil".to_owned(),
        RenewReply::Shared => "shared".to_owned(),
        RenewReply::TooFarAhead(most) => format!("too far ahead, at most {most}"),
        RenewReply::NotALock => "WRONGTYPE".to_owned(),
        RenewReply::TryAgain => "TRYAGAIN".to_owned(),
    }
}

/// Returns the reason for a look at a lock.
pub(crate) fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Expiry => "whose lease may have ended",
        Cause::Outside | Cause::Check => "which may have changed",
        Cause::Release | Cause::Forced | Cause::TakenBack | Cause::SessionGone | Cause::Flush => {
            "for no reason"
        }
    }
}

/// Returns what a change writes to a key; empty if it writes nothing.
pub(crate) fn written<P>(name: &Name, caller: &str, change: &Change<P>, now: Now) -> String {
    let new = |owner: &str, token: Token, until: UnixMillis| {
        let (token, left) = (token.value(), until.since(now.unix()).0);
        format!("{owner} 1, fencing-token t{token}, expires in {left}")
    };
    let what = match change {
        Change::None => return String::new(),
        Change::Take { token, until, .. } => new(caller, *token, *until),
        Change::Update { holds, token, until, .. } => {
            let holds = holds.map(|holds| format!("{caller} {holds}"));
            let token = token.map(|token| format!("fencing-token t{}", token.value()));
            let until = until.map(|until| format!("expires in {}", until.since(now.unix()).0));
            Vec::from_iter([holds, token, until].into_iter().flatten()).join(", ")
        }
        Change::Free => "deleted, and published".to_owned(),
        Change::GiveWay => "published, and deleted for a moment".to_owned(),
        Change::HandOff(to) => new(&String::from_utf8_lossy(&to.owner), to.token, to.until),
        Change::Leave => format!("without {caller}"),
        Change::Beside { holds, token, until } => {
            let mode = match holds {
                0 => "without lock-mode".to_owned(),
                holds => format!("lock-mode exclusive {holds}"),
            };
            let token = token.map(|token| format!("fencing-token t{}", token.value()));
            let until = until.map(|until| format!("expires in {}", until.since(now.unix()).0));
            Vec::from_iter([Some(mode), token, until].into_iter().flatten()).join(", ")
        }
        Change::Share(sharers) => shared(caller, sharers, now),
    };
    format!("{} := {what}\n", key(name))
}

fn shared<P>(caller: &str, sharers: &Sharers<P>, now: Now) -> String {
    let mode = sharers.begins.then(|| "lock-mode shared".to_owned());
    let token = sharers.token.map(|token| format!("fencing-token t{}", token.value()));
    let own = sharers.own.map(|own| format!("{caller} {}", share(own, now)));
    let joined = sharers.joined.iter().map(|to| {
        let joined = Share { holds: 1, until: to.until };
        format!("{} {}", String::from_utf8_lossy(&to.owner), share(joined, now))
    });
    let until = sharers.until.map(|until| format!("expires in {}", until.since(now.unix()).0));
    let all = [mode, token, own].into_iter().flatten().chain(joined).chain(until);
    Vec::from_iter(all).join(", ")
}

fn share(share: Share, now: Now) -> String {
    format!("{} for {}", share.holds, share.until.since(now.unix()).0)
}

/// Returns the state of a lock.
pub(crate) fn seen(seen: &Observed<'_>, now: Now) -> String {
    let ends = |until: Option<UnixMillis>| match until {
        Some(until) => format!("{} left", until.since(now.unix()).0),
        None => "without end".to_owned(),
    };
    match seen {
        Observed::Free { stored: None } => "free".to_owned(),
        Observed::Free { stored: Some(token) } => {
            format!("free, token {} left behind", token.value())
        }
        Observed::NotALock { until } => format!("not a lock, {}", ends(*until)),
        Observed::Held(Holding { owner, holds, shared, token, until }) => {
            let owner = String::from_utf8_lossy(owner);
            let beside = if *shared > 0 { format!(" and {shared} shared") } else { String::new() };
            let token = named(*token);
            format!("held by {owner}, holds {holds}{beside}, token {token}, {}", ends(*until))
        }
        Observed::Shared(Sharing { holders, token, until, .. }) => {
            let token = named(*token);
            format!("shared by {holders}, token {token}, {}", ends(*until))
        }
    }
}

fn named(token: Option<Token>) -> String {
    token.map_or_else(|| "none".to_owned(), |token| token.value().to_string())
}

/// Returns the counters that changed.
pub(crate) fn counted(before: &Counters, after: &Counters) -> String {
    let peak = |counters: &Counters| counters.waiters_peak as u64;
    let moved = [
        ("granted", before.granted, after.granted),
        ("shared", before.granted_shared, after.granted_shared),
        ("downgraded", before.downgraded, after.downgraded),
        ("reentered", before.reentered, after.reentered),
        ("repeated", before.repeated, after.repeated),
        ("refused", before.refused, after.refused),
        ("released", before.released, after.released),
        ("handed off", before.handed_off, after.handed_off),
        ("by expiry", before.handed_off_by_expiry, after.handed_off_by_expiry),
        ("timeouts", before.timeouts, after.timeouts),
        ("cancelled", before.cancelled, after.cancelled),
        ("disconnects", before.disconnects, after.disconnects),
        ("forced", before.forced_releases, after.forced_releases),
        ("quarantines", before.quarantines, after.quarantines),
        ("taken back", before.grants_taken_back, after.grants_taken_back),
        ("most waiters", peak(before), peak(after)),
    ];
    let moved = moved.into_iter().filter(|(_, before, after)| before != after);
    let moved = moved.map(|(what, _, after)| format!("{what} {after}"));
    let moved = Vec::from_iter(moved).join(", ");
    if moved.is_empty() { moved } else { format!("counted: {moved}\n") }
}

/// Returns the change that an observer receives.
pub(crate) fn changed(changed: &Changed) -> String {
    let why = changed.why.map(|why| format!(", {why:?}").to_lowercase()).unwrap_or_default();
    format!("{}{why}", holder_state(&changed.news))
}

/// Returns the state of a lock as an observer sees it.
pub(crate) fn holder_state(news: &VersionedState) -> String {
    let token =
        |token: Option<Token>| token.map_or_else(|| "none".to_owned(), |it| it.value().to_string());
    let what = match &news.holder_state {
        HolderState::Vacant => "vacant".to_owned(),
        HolderState::Shared { token: of } => format!("shared, token {}", token(*of)),
        HolderState::Held { owner, token: of, value } => {
            let owner = String::from_utf8_lossy(owner);
            let value = value.as_deref().map(String::from_utf8_lossy);
            let value = value.map(|value| format!(" says {value}")).unwrap_or_default();
            format!("held by {owner}, token {}{value}", token(*of))
        }
    };
    format!("version {}: {what}", news.version)
}
