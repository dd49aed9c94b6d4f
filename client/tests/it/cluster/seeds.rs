//! From the address to the cluster, and what is said when there is none.

use super::*;
use crate::tls::of_the_documents;
use harness::port;

async fn refused(address: &str) -> Error {
    soon(Client::connect(address)).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_one_node_that_answers_is_enough() {
    let cluster = Cluster::start(3, 1);
    let dead = port::free();
    for node in [&cluster.nodes()[1], &cluster.nodes()[4]] {
        let address = format!("redis-cluster://127.0.0.1:{dead},127.0.0.1:{}", node.port());
        let client = soon(Client::connect(address)).await.unwrap();
        for key in a_key_of_each(&cluster) {
            let guard = soon(client.lock(&key).try_acquire()).await.unwrap().expect("it is free");
            soon(guard.release()).await.unwrap();
        }
    }
    // But it is not taken for all.
    let client = Client::connect(cluster.nodes()[1].url()).await.unwrap();
    let told = soon(client.lock(early_key(&cluster)).acquire()).await.unwrap_err();
    assert!(matches!(&told, Error::Config(text) if text.contains("redis-cluster://")), "{told:?}");
    // Nor are all taken for one server of a quorum.
    let all = Client::connect(cluster.url()).await.unwrap();
    let told = kvlock_quorum::Quorum::of([all]).await.unwrap_err();
    assert!(matches!(&told, Error::Config(text) if text.contains("cluster")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_address_is_told() {
    let dead = port::free();
    let told = refused(&format!("redis-cluster://127.0.0.1:{dead}")).await;
    assert!(matches!(told, Error::Connection(_)) && told.is_retryable(), "{told:?}");
    assert!(told.to_string().contains(&format!("127.0.0.1:{dead}")), "{told}");

    let alone = Server::start();
    let told = refused(&format!("redis-cluster://127.0.0.1:{}", alone.port())).await;
    let Error::Config(text) = &told else { panic!("{told:?}") };
    assert!(text.contains("no node of a cluster") && text.contains("redis://"), "{text}");

    let empty = Server::options().cluster().start();
    let told = refused(&format!("redis-cluster://127.0.0.1:{}", empty.port())).await;
    assert!(told.is_retryable() && told.to_string().contains("no slots"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_know_locks_is_told() {
    let cluster = Cluster::start_with(&Server::options().without_module(), 3, 0);
    let told = refused(&cluster.url()).await;
    let Error::ModuleMissing(text) = &told else { panic!("{told:?}") };
    assert!(text.contains("127.0.0.1:"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_get_the_login_and_it_needs_no_more_than_the_documents_say() {
    let cluster = Cluster::start(3, 0);
    let (user, more) = (of_the_documents("ACL SETUSER shop"), of_the_documents("+cluster|"));
    for node in cluster.nodes() {
        let made = node.connect().run(&format!("{user} {more}"));
        assert_eq!(made, Value::Status("OK".into()), "{made}");
    }
    let address = |login: &str| cluster.url().replace("://", &format!("://{login}@"));
    let client = soon(Client::connect(address("shop:secret"))).await.unwrap();
    for number in 0..500 {
        let lock = client.lock(format!("orders:{number}"));
        let guard = soon(lock.try_acquire()).await.unwrap().expect("it is free");
        soon(guard.release()).await.unwrap();
    }
    let mut granted = 0;
    for node in cluster.nodes() {
        let mut node = node.connect();
        let here = observe::info_number(&mut node, "kvlock_granted");
        assert!(here > 100, "{here} at one of three");
        granted += here;
        // The client knew where to go.
        assert_eq!(observe::info_field(&mut node, "errorstat_MOVED"), None);
    }
    assert_eq!(granted, 500);
    let told = refused(&address("shop:wrong")).await;
    assert!(matches!(told, Error::Authentication(_)), "{told:?}");
}
