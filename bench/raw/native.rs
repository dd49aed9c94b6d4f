//! kvlock's own commands.

use crate::Connect;
use crate::wire::{Reply, Wire};
use driver::{Args, Session};

pub(crate) struct Native {
    wire: Wire,
    task: usize,
    acquired: u64,
    lease_ms: String,
    /// `true` if the task acquires shared locks.
    shares: bool,
}

impl Connect for Native {
    async fn connect(args: &Args, task: usize) -> Self {
        let wire = Wire::connect(args.text("url")).await;
        let (lease_ms, shares) = (args.text("lease_ms").to_owned(), args.text("mode") == "share");
        Self { wire, task, acquired: 0, lease_ms, shares }
    }
}

impl Session for Native {
    /// The key, and an owner for this acquisition only.
    type Held = [String; 2];

    async fn acquire(&mut self, key: &str) -> Self::Held {
        self.acquired += 1;
        let owner = owner(self.task, self.acquired);
        let command = ["LOCK.WAIT", key, &owner, &self.lease_ms, "0", "SHARED"].map(str::as_bytes);
        let words = if self.shares { command.len() } else { command.len() - 1 };
        let reply = self.wire.call(command.split_at(words).0).await;
        assert!(matches!(reply, Reply::Array(_)), "{reply:?}");
        [key.to_owned(), owner]
    }

    async fn release(&mut self, [key, owner]: Self::Held) {
        let command = ["LOCK.RELEASE", &key, &owner, "SHARED"].map(str::as_bytes);
        let words = if self.shares { command.len() } else { command.len() - 1 };
        let reply = self.wire.call(command.split_at(words).0).await;
        assert!(matches!(reply, Reply::Integer(0)), "{reply:?}");
    }

    fn abandon(&mut self, _: Self::Held) {}
}

/// The name of an owner, as long as names of real clients.
pub(crate) fn owner(task: usize, acquired: u64) -> String {
    format!("285475da-9152-4c83-822a-{task:012x}:{acquired}")
}
