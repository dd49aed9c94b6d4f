//! Who hears that a lock is free, in a cluster: by default only who subscribed in the shard.

use super::{Pair, key_of_slot, ok};
use crate::asking::{acquire, arrival, release, token};
use harness::{Connection, Kind, Server, Value, cmd, on_each_server};

/// Comes after all that a release has published on the same channel.
const MARK: &str = "mark";

struct Listeners {
    channel: String,
    sharded: Connection,
    plain_at_home: Connection,
    plain_elsewhere: Connection,
}

impl Listeners {
    fn new(pair: &Pair, channel: String) -> Self {
        let listen = |node: &Server, how: &str| {
            let mut connection = node.connect();
            assert_eq!(connection.call(cmd![how, channel])[2], Value::Integer(1));
            connection
        };
        let sharded = listen(pair.home(), "SSUBSCRIBE");
        let plain_at_home = listen(pair.home(), "SUBSCRIBE");
        let plain_elsewhere = listen(pair.away(), "SUBSCRIBE");
        Self { channel, sharded, plain_at_home, plain_elsewhere }
    }

    /// What each of them has heard up to now.
    fn heard(&mut self, home: &mut Connection) -> [Vec<String>; 3] {
        home.call(cmd!["SPUBLISH", self.channel, MARK]);
        home.call(cmd!["PUBLISH", self.channel, MARK]);
        let until_mark = |listener: &mut Connection| -> Vec<String> {
            std::iter::from_fn(|| Some(arrival(listener)[2].text()).filter(|text| text != MARK))
                .collect()
        };
        [&mut self.sharded, &mut self.plain_at_home, &mut self.plain_elsewhere].map(until_mark)
    }
}

fn a_release_is_told_as_the_option_says(kind: Kind) {
    let pair = Pair::start(&kind);
    let mut home = pair.home().connect();
    let key = key_of_slot(9);
    let tagged = format!("orders:{{{key}}}:42");
    for (key, channel) in [
        (key.clone(), format!("redisson_lock__channel:{{{key}}}")),
        (tagged.clone(), format!("redisson_lock__channel:{tagged}")),
    ] {
        let mut listeners = Listeners::new(&pair, channel);
        for (how, sharded, plain) in [("auto", 1, 0), ("both", 1, 1), ("no", 0, 0)] {
            ok(&home.call(cmd!["CONFIG", "SET", "kvlock.redisson-channel", how]));
            token(&acquire(&mut home, &key, "alice"));
            assert_eq!(release(&mut home, &key, "alice"), Value::Integer(0));
            let zeros = |count| vec!["0".to_owned(); count];
            assert_eq!(
                listeners.heard(&mut home),
                [zeros(sharded), zeros(plain), zeros(plain)],
                "{how} {key}"
            );
        }
    }
}

on_each_server!(a_release_is_told_as_the_option_says);
