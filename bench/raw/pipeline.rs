//! A pipeline of acquisitions and releases on a separate key for each task. It is encoded once and sent
//! repeatedly.

use crate::Connect;
use crate::family;
use crate::floors::{self, COMPARE_AND_DELETE, load};
use crate::lua::{self, GIVE_BACK, TAKE};
use crate::native::owner;
use crate::wire::{Wire, request};
use driver::{Args, Session};

pub(crate) struct Pipeline {
    wire: Wire,
    requests: Vec<u8>,
    replies: usize,
    /// First byte of a reply that refuses an acquire, in the protocols whose refusals are detected.
    refusal: u8,
}

impl Connect for Pipeline {
    async fn connect(args: &Args, task: usize) -> Self {
        let mut wire = Wire::connect(args.text("url")).await;
        let key = format!("{}:{task}", args.text("key"));
        let cycle = cycle(&mut wire, args, &key, &owner(task, 1)).await;
        let cycles = args.number::<usize>("depth") / 2;
        let requests = cycle.iter().flatten().copied().collect::<Vec<u8>>().repeat(cycles);
        // The scripts for locks answer a grant with nil, and a refusal with a number: the rest of another
        // owner's lease. `SEM.ACQUIRE` answers a grant with a number, and a refusal with nil. The other
        // protocols refuse in a way that is not detected here.
        let counts = match args.text("proto") {
            "kvlock" => args.text("mode") == "permit",
            proto => proto == "counter",
        };
        let refusal = if counts { b'$' } else { b':' };
        Self { wire, requests, replies: cycles * cycle.len(), refusal }
    }
}

/// The commands of one acquisition and release.
async fn cycle(wire: &mut Wire, args: &Args, key: &str, owner: &str) -> Vec<Vec<u8>> {
    let lease = args.text("lease_ms");
    match args.text("mode") {
        "share" => return family::shares(wire, args.text("proto"), [key, owner, lease]).await,
        "permit" => return family::permits(wire, args.text("proto"), [key, owner, lease]).await,
        _ => {}
    }
    let set = ["SET", key, owner, "NX", "PX", lease];
    let commands = match args.text("proto") {
        "kvlock" => vec![vec!["LOCK.ACQUIRE", key, owner, lease], vec!["LOCK.RELEASE", key, owner]],
        "lua" => {
            let (take, release) = (load(wire, TAKE).await, load(wire, GIVE_BACK).await);
            let (channel, outcome) = (lua::channel(key), lua::outcome(key, owner));
            return [
                ["EVALSHA", &take, "1", key, lease, owner].as_slice(),
                &lua::give_back(&release, key, &channel, &outcome, lease, owner),
                &["DEL", &outcome],
            ]
            .map(request)
            .into();
        }
        "set-cad" => {
            let sha = load(wire, COMPARE_AND_DELETE).await;
            return [set.as_slice(), &["EVALSHA", &sha, "1", key, owner]].map(request).into();
        }
        "set-del" => vec![set.into(), vec!["DEL", key]],
        "plain" => return floors::plain(key).into(),
        "ping" => vec![vec!["PING"], vec!["PING"]],
        other => panic!("{other} cannot be pipelined"),
    };
    commands.iter().map(|command| request(command)).collect()
}

impl Session for Pipeline {
    type Held = ();

    async fn acquire(&mut self, _key: &str) {
        self.wire.send(&self.requests).await;
        let first = self.wire.skip_replies(self.replies).await;
        assert_ne!(first, self.refusal, "each task has a lock of its own");
    }

    async fn release(&mut self, (): ()) {}

    fn abandon(&mut self, (): ()) {}
}
