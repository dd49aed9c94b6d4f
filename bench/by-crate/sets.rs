//! Tasks that need several locks at the same time, like the dining philosophers. With `proto=crate` they
//! acquire all locks with one command; with `proto=sorted`, one lock after another in the order of their
//! names.

use driver::{Args, Session};
use kvlock::{Client, Guard};

struct Sets {
    client: Client,
    /// Total number of locks, and number of locks of a task.
    keys: usize,
    width: usize,
    one_step: bool,
    abandoned: Vec<Vec<Guard>>,
}

pub(crate) async fn run(args: Args) -> ! {
    let clients = crate::connect(&args).await;
    let one_step = args.text("proto") == "crate";
    let session = |task: usize| Sets {
        client: clients.get(task % clients.len()).unwrap().clone(),
        keys: args.number("keys"),
        width: args.number("width"),
        one_step,
        abandoned: Vec::new(),
    };
    let sessions = (0..args.number("tasks")).map(session).collect();
    driver::drive(args, env!("CARGO_PKG_VERSION"), sessions).await
}

impl Sets {
    /// The first `width` of these names: the given lock, the next one in the circle, and the one halfway round.
    fn names(&self, key: &str) -> Vec<String> {
        let (table, seat) = key.rsplit_once(':').unwrap();
        let seat: usize = seat.parse().unwrap();
        let steps = [0, 1, self.keys / 2].into_iter().take(self.width);
        steps.map(|step| format!("{table}:{}", (seat + step) % self.keys)).collect()
    }
}

impl Session for Sets {
    type Held = Vec<Guard>;

    async fn acquire(&mut self, key: &str) -> Vec<Guard> {
        let mut names = self.names(key);
        if self.one_step {
            let (first, others) = names.split_first().unwrap();
            let guard = self.client.lock(first).and(others.to_vec()).acquire().await.unwrap();
            return vec![guard];
        }
        names.sort_unstable();
        let mut guards = Vec::new();
        for name in names {
            guards.push(self.client.lock(name).acquire().await.unwrap());
        }
        guards
    }

    async fn release(&mut self, guards: Vec<Guard>) {
        for guard in guards {
            guard.release().await.unwrap();
        }
    }

    fn abandon(&mut self, guards: Vec<Guard>) {
        self.abandoned.push(guards);
    }
}
