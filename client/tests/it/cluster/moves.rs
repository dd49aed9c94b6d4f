//! Slots move to other nodes.

use super::*;
use kvlock::Guard;
use tokio::task::JoinSet;

/// Number of slots that move: the lowest slots of their node.
const MOVED: u32 = 100;

/// Starts `count` waiters for the lock, each with a new client.
pub(super) async fn waiters(cluster: &Cluster, key: &str, count: usize) -> Vec<Waiter> {
    let mut waiters = Vec::new();
    for _ in 0..count {
        waiters.push(waits(&client(cluster).await.lock(key)));
    }
    observe::wait_for_waiters(&mut cluster.node_for(key).connect(), key, count as i64);
    waiters
}

/// Releases the lock. Checks that each waiter gets it, with a larger token than the previous owner's.
pub(super) async fn all_are_served(waiters: Vec<Waiter>, holder: Guard) {
    let mut last = holder.token();
    ok(holder.release()).await;
    // Collects the guards in the order of their grants.
    let mut set = JoinSet::new();
    for waiter in waiters {
        set.spawn(async move { waiter.await.unwrap().unwrap() });
    }
    while let Some(guard) = soon(set.join_next()).await {
        let guard = guard.unwrap();
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
        ok(guard.release()).await;
    }
}

/// The slot moves to another node and back, and then to a node that has just joined and leaves again.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_and_its_waiters_move_with_their_slot_and_back() {
    let mut cluster = Cluster::start(3, 0);
    let client = client_with(&cluster, Duration::from_secs(20)).await;
    let key = early_key(&cluster);
    let holder = ok(client.lock(&key).acquire()).await;
    let waiters = waiters(&cluster, &key, 100).await;
    let goes = |cluster: &Cluster, from: usize, to: usize| {
        let to = &cluster.nodes()[to];
        cluster.reshard(&cluster.nodes()[from], to, MOVED);
        assert_eq!(cluster.node_for(&key).port(), to.port());
        // The waiters are queued again, at the other node.
        observe::wait_for_waiters(&mut to.connect(), &key, 100);
    };
    meanwhile(|| {
        goes(&cluster, 0, 1);
        goes(&cluster, 1, 0);
        cluster.join(&Server::options());
        goes(&cluster, 0, 3);
        goes(&cluster, 3, 0);
        cluster.leave();
        goes(&cluster, 0, 1);
    });
    // The lock is renewed at the new node.
    cluster.nodes()[1].connect().call(cmd!["PEXPIRE", key, 10_000]);
    wait_for_lease(&cluster.nodes()[1], key.as_bytes(), 10_000);
    assert!(!holder.is_lost());
    all_are_served(waiters, holder).await;
    wait_until_free(&cluster, &key);
}

/// The previous node of the slot still runs, and so does the session there.
#[tokio::test(flavor = "multi_thread")]
async fn a_bound_lock_is_bound_again_at_the_new_node_of_its_slot() {
    let cluster = Cluster::start(3, 0);
    let builder = Client::builder().lease(LONG).session_ttl(Duration::from_secs(3));
    let client = builder.connect(cluster.url()).await.unwrap();
    let key = early_key(&cluster);
    let guard = ok(client.lock(&key).bound().acquire()).await;
    let bound = |node: usize| {
        let mut there = cluster.nodes()[node].connect();
        move || observe::info_number(&mut there, "kvlock_bound")
    };
    meanwhile(|| {
        for (from, to) in [(0, 1), (1, 2)] {
            cluster.reshard(&cluster.nodes()[from], &cluster.nodes()[to], MOVED);
            wait::until_is("it is bound there", SOON, 1, bound(to));
        }
    });
    assert_eq!(guard.why_lost(), None);
    ok(guard.release()).await;
    wait_until_free(&cluster, &key);
}

/// The session still has the lock whose slot has not moved, so it continues after its connection is cut.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_continues_when_the_slot_of_one_of_its_locks_has_moved() {
    let cluster = Cluster::start(3, 0);
    // The ttl is so long that the moved lock is not bound again before the cut.
    let builder = Client::builder().lease(LONG).session_ttl(Duration::from_secs(60));
    let client = builder.connect(cluster.url()).await.unwrap();
    let (home, away) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let tag = early_key(&cluster);
    let stays = (0..)
        .map(|number| format!("k{number}"))
        .find(|key| (i64::from(MOVED)..5000).contains(&cluster.slot_of(key)))
        .unwrap();
    let moved = ok(client.lock(format!("{{{tag}}}")).bound().acquire()).await;
    let stayed = ok(client.lock(&stays).bound().acquire()).await;
    let reader = |before: Option<&Value>| {
        let mut there = home.connect();
        wait::until("the session is read", SOON, move || {
            let list = there.run("SESSION.LIST");
            let reads = |session: &&Value| {
                let reader = session.field("reader");
                !reader.is_nil() && Some(reader) != before.map(|before| before.field("reader"))
            };
            list.elements().iter().find(reads).cloned().ok_or_else(|| list.to_string())
        })
    };
    let before = meanwhile(|| reader(None));
    meanwhile(|| cluster.reshard(home, away, MOVED));
    // From the reply to this request, the client knows where the slot is now.
    drop(ok(client.lock(format!("{{{tag}}}other")).acquire()).await);
    let after = meanwhile(|| {
        home.connect().call(cmd!["CLIENT", "KILL", "ID", before.field("reader").integer()]);
        reader(Some(&before))
    });
    assert_eq!(after.field("id"), before.field("id"));
    assert_eq!((moved.why_lost(), stayed.why_lost()), (None, None));
    ok(moved.release()).await;
    ok(stayed.release()).await;
}

/// One key of the slot is still at the old node. The others are at the new node.
#[tokio::test(flavor = "multi_thread")]
async fn during_a_migration_requests_go_to_the_node_that_has_the_key() {
    let cluster = Cluster::start(3, 0);
    let client = client_with(&cluster, Duration::from_secs(6)).await;
    let key = early_key(&cluster);
    let slot = cluster.slot_of(&key);
    let here = |name: &str| format!("{{{key}}}{name}");
    let (home, away) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let moved = ok(client.lock(here("moved")).acquire()).await;
    let stays = ok(client.lock(here("stays")).acquire()).await;
    let (from, to) = (cluster.id_of(home), cluster.id_of(away));
    let (mut at_home, mut at_away) = (home.connect(), away.connect());
    at_away.call(cmd!["CLUSTER", "SETSLOT", slot, "IMPORTING", from.as_str()]);
    at_home.call(cmd!["CLUSTER", "SETSLOT", slot, "MIGRATING", to.as_str()]);
    let floors = at_home.call(cmd!["CLUSTER", "GETKEYSINSLOT", slot, 100]);
    let floors = floors.elements().iter().map(Value::text);
    for name in floors.filter(|name| *name != here("stays")) {
        let done = at_home.call(cmd!["MIGRATE", "127.0.0.1", away.port(), name, 0, 5000]);
        assert_eq!(done, Value::Status("OK".into()), "{done}");
    }

    // The watchdog renews each lock at its node. A lease of six seconds is renewed after two.
    let asking = |line: Vec<Vec<u8>>| {
        let mut there = away.connect();
        there.run("ASKING");
        there.call(line)
    };
    asking(cmd!["PEXPIRE", here("moved"), 4000]);
    at_home.call(cmd!["PEXPIRE", here("stays"), 4000]);
    let info = || asking(cmd!["LOCK.INFO", here("moved")]);
    wait_for_more(4000, || info().field("lease-left").integer());
    wait_for_lease(home, here("stays").as_bytes(), 4000);
    // A waiter waits at the new node, and a cancelled one is removed there.
    let waiter = waits(&client.lock(here("moved")));
    let in_line = |count| {
        wait::until_is("so many wait", SOON, count, || info().field("waiters").integer());
    };
    meanwhile(|| in_line(1));
    waiter.abort();
    meanwhile(|| in_line(0));
    assert!(ok(client.lock(here("moved")).try_acquire()).await.is_none());
    let info = ok(client.lock(here("moved")).info()).await;
    assert_eq!(info.owner.as_deref(), Some(moved.owner().as_bytes()));
    let token = moved.token();
    ok(moved.release()).await;
    let next = ok(client.lock(here("moved")).acquire()).await;
    assert!(next.token() > token);
    ok(stays.release()).await;

    for node in [away, home] {
        node.connect().call(cmd!["CLUSTER", "SETSLOT", slot, "NODE", to.as_str()]);
    }
    ok(next.release()).await;
    meanwhile(|| cluster.wait_until_agreed());
    for name in ["moved", "stays"] {
        assert_eq!(at_away.call(cmd!["EXISTS", here(name)]), Value::Integer(0));
    }
}
