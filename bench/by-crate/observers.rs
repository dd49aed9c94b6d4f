//! Observers of an election through the crate.

use crate::{connect, time};
use driver::observe::{self, Candidate};
use driver::{Args, now};
use kvlock::{Client, Election, Leadership};
use tokio::sync::mpsc::unbounded_channel;

struct Stands {
    election: Election,
    leads: Option<Leadership>,
}

pub(crate) async fn run(args: &Args) -> ! {
    let mut candidates = Vec::new();
    for _ in 0..2 {
        let client = Client::connect(args.text("url")).await.unwrap();
        let election = client.election(args.text("key")).lease(time(args));
        candidates.push(Stands { election, leads: None });
    }
    let clients = connect(args).await;
    let (say, heard) = unbounded_channel();
    for task in 0..args.number("tasks") {
        let client = clients.get(args.client_of(task)).unwrap();
        let mut observer = client.election(args.text("key")).observe().await.unwrap();
        let say = say.clone();
        tokio::spawn(async move {
            loop {
                // There is no leader for a moment between two terms.
                if let Some(leader) = observer.changed().await {
                    let number = String::from_utf8(leader.value).unwrap().parse().unwrap();
                    say.send((number, now())).unwrap();
                }
            }
        });
    }
    let candidates = candidates.try_into().unwrap_or_else(|_| panic!("there are two"));
    observe::observe(args, env!("CARGO_PKG_VERSION"), candidates, heard).await
}

impl Candidate for Stands {
    async fn lead(&mut self, number: u64) {
        let campaign = self.election.clone().value(number.to_string());
        self.leads = Some(campaign.campaign().await.unwrap());
    }

    async fn resign(&mut self) {
        self.leads.take().unwrap().resign().await.unwrap();
    }
}
