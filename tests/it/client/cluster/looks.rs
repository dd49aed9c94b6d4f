//! Nodes that do not answer, while callers have limits.

use super::*;
use nix::sys::signal::Signal;
use std::time::Instant;
use tokio::task::JoinSet;

const REPLY: Duration = Duration::from_millis(500);

/// Much more than the reply timeout, much less than to ask each node in vain.
const IN_TIME: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_while_no_node_answers() {
    let cluster = Cluster::start(3, 0);
    let client = Client::builder().reply_timeout(REPLY).connect(cluster.url()).await.unwrap();
    for node in cluster.nodes() {
        node.stand_still();
    }
    // The first of them find out that there is trouble, the others look who has the slot now.
    for _ in 0..3 {
        let began = Instant::now();
        let mut tries = JoinSet::new();
        for number in 0..10 {
            let lock = client.lock(format!("k{number}"));
            tries.spawn(async move { lock.acquire_within(REPLY / 10).await.unwrap_err() });
        }
        while let Some(trouble) = soon(tries.join_next()).await {
            let trouble = trouble.unwrap();
            assert!(trouble.is_retryable(), "{trouble:?}");
        }
        assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    }
    for node in cluster.nodes() {
        node.signal(Signal::SIGCONT);
    }
    soon(client.settled()).await;
    for number in 0..10 {
        wait_until_free(&cluster, &format!("k{number}"));
    }
}
