//! An election as it is usually written by hand: `SET NX PX`, retried every 100 ms. The leader renews its
//! lease whenever a third of it has passed. Observers read the key every 100 ms.

use crate::Connect;
use crate::wire::{Reply, Wire};
use driver::observe::{self, Candidate};
use driver::{Args, Session, now};
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::AbortHandle;
use tokio::time::{interval, sleep};

/// A common polling interval.
pub(crate) const POLL: Duration = Duration::from_millis(100);

const RENEW: &str = "\
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
return 0";

const RESIGN: &str = "\
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0";

pub(crate) struct Poller {
    args: Args,
    wire: Wire,
    name: String,
    /// The task that renews the lease.
    renews: Option<AbortHandle>,
}

impl Connect for Poller {
    async fn connect(args: &Args, task: usize) -> Self {
        let wire = Wire::connect(args.text("url")).await;
        let name = format!("candidate {} {task}", args.text("process"));
        Self { args: args.clone(), wire, name, renews: None }
    }
}

impl Poller {
    async fn campaign(&mut self, key: &str) {
        let lease = self.args.text("lease_ms").to_owned();
        let set = ["SET", key, &self.name, "NX", "PX", &lease].map(str::as_bytes);
        while matches!(self.wire.call(&set).await, Reply::Nil) {
            sleep(POLL).await;
        }
        let mut beside = Wire::connect(self.args.text("url")).await;
        let third = Duration::from_millis(self.args.number("lease_ms")) / 3;
        let (key, name) = (key.to_owned(), self.name.clone());
        let renews = tokio::spawn(async move {
            loop {
                sleep(third).await;
                let renew = ["EVAL", RENEW, "1", &key, &name, &lease].map(str::as_bytes);
                beside.call(&renew).await;
            }
        });
        self.renews = Some(renews.abort_handle());
    }

    async fn resign(&mut self, key: &str) {
        if let Some(renews) = self.renews.take() {
            renews.abort();
        }
        let resign = ["EVAL", RESIGN, "1", key, &self.name].map(str::as_bytes);
        assert!(matches!(self.wire.call(&resign).await, Reply::Integer(1)), "it is not ours");
    }
}

impl Session for Poller {
    type Held = String;

    async fn acquire(&mut self, key: &str) -> String {
        self.campaign(key).await;
        key.to_owned()
    }

    async fn release(&mut self, key: String) {
        self.resign(&key).await;
    }

    fn abandon(&mut self, _: String) {}
}

impl Candidate for Poller {
    async fn lead(&mut self, number: u64) {
        self.name = number.to_string();
        let key = self.args.text("key").to_owned();
        self.campaign(&key).await;
    }

    async fn resign(&mut self) {
        let key = self.args.text("key").to_owned();
        Self::resign(self, &key).await;
    }
}

pub(crate) async fn observe(args: &Args) -> ! {
    let candidates = [Poller::connect(args, 0).await, Poller::connect(args, 1).await];
    let (say, heard) = unbounded_channel();
    for _ in 0..args.number("tasks") {
        let (mut wire, say) = (Wire::connect(args.text("url")).await, say.clone());
        let get = ["GET", args.text("key")].map(|word| word.as_bytes().to_vec());
        tokio::spawn(async move {
            let (mut turns, mut last) = (interval(POLL), None);
            loop {
                turns.tick().await;
                let Reply::Text(name) = wire.call(&get.each_ref().map(Vec::as_slice)).await else {
                    continue;
                };
                let number: u64 = String::from_utf8(name).unwrap().parse().unwrap();
                if last.replace(number) != Some(number) {
                    say.send((number, now())).unwrap();
                }
            }
        });
        // Observers start at different times, so that their polls are spread over the interval.
        sleep(POLL / args.number("tasks")).await;
    }
    observe::observe(args, env!("CARGO_PKG_VERSION"), candidates, heard).await
}
