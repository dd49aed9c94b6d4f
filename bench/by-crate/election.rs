//! Candidates: each task stands for election, leads for a while, and resigns.

use crate::{connect, time};
use driver::{Args, Session};
use kvlock::{Client, Leadership};

struct Candidate {
    client: Client,
    args: Args,
}

pub(crate) async fn run(args: Args) {
    let clients = connect(&args).await;
    let candidate = |task| {
        let client = clients.get(args.client_of(task)).unwrap().clone();
        Candidate { client, args: args.clone() }
    };
    let candidates = (0..args.number("tasks")).map(candidate).collect();
    driver::drive(args, env!("CARGO_PKG_VERSION"), candidates).await;
}

impl Session for Candidate {
    type Held = Leadership;

    async fn acquire(&mut self, key: &str) -> Leadership {
        let election = self.client.election(key).value("10.0.0.7:80").lease(time(&self.args));
        election.campaign().await.unwrap()
    }

    async fn release(&mut self, leadership: Leadership) {
        leadership.resign().await.unwrap();
    }

    fn abandon(&mut self, leadership: Leadership) {
        drop(leadership);
    }
}
