//! Connecting to a cluster: addresses, logins and errors.

use super::*;
use crate::tls::of_the_documents;
use harness::port;

#[tokio::test(flavor = "multi_thread")]
async fn one_node_that_answers_is_enough() {
    let cluster = Cluster::start(3, 1);
    let dead = port::free();
    for node in [&cluster.nodes()[1], &cluster.nodes()[4]] {
        let address = format!("redis-cluster://127.0.0.1:{dead},127.0.0.1:{}", node.port());
        let client = ok(Client::connect(address)).await;
        for key in a_key_of_each(&cluster) {
            let guard = ok(client.lock(&key).try_acquire()).await.expect("it is free");
            ok(guard.release()).await;
        }
    }
    // Without `redis-cluster://`, the address of one node is not enough.
    let client = Client::connect(cluster.nodes()[1].url()).await.unwrap();
    let told = soon(client.lock(early_key(&cluster)).acquire()).await.unwrap_err();
    assert!(matches!(&told, Error::Config(text) if text.contains("redis-cluster://")), "{told:?}");
    // The whole cluster does not count as one server of a quorum.
    let all = Client::connect(cluster.url()).await.unwrap();
    let told = kvlock_quorum::Quorum::of([all]).await.unwrap_err();
    assert!(matches!(&told, Error::Config(text) if text.contains("cluster")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_get_the_login_and_the_documented_rights_suffice() {
    let cluster = Cluster::start(3, 0);
    let (user, more) = (of_the_documents("ACL SETUSER shop"), of_the_documents("+cluster|"));
    for node in cluster.nodes() {
        let made = node.connect().run(&format!("{user} {more}"));
        assert_eq!(made, Value::Status("OK".into()), "{made}");
    }
    let address = |login: &str| cluster.url().replace("://", &format!("://{login}@"));
    let client = ok(Client::connect(address("shop:secret"))).await;
    for number in 0..500 {
        let lock = client.lock(format!("orders:{number}"));
        let guard = ok(lock.try_acquire()).await.expect("it is free");
        ok(guard.release()).await;
    }
    let mut granted = 0;
    for node in cluster.nodes() {
        let mut node = node.connect();
        let here = observe::info_number(&mut node, "kvlock_granted");
        assert!(here > 100, "{here} at one of three");
        granted += here;
        // The client sent each command to the right node.
        assert_eq!(observe::info_field(&mut node, "errorstat_MOVED"), None);
    }
    assert_eq!(granted, 500);
    assert_matches!(
        soon(Client::connect(address("shop:wrong"))).await.unwrap_err(),
        Error::Authentication(_)
    );
}
