//! A server changes its role while clients wait. Only a primary grants: a replica that writes on
//! its own no longer has the data of its primary.

use crate::server::failovers::expect_sent_away;
use crate::stage::{LONG, SOON, Stage, expect_same_data, expect_unharmed, kill, token_of};
use harness::{Connection, Kind, Server, Value, observe, on_each_server, wait};

fn follow(other: &Server) -> String {
    format!("REPLICAOF 127.0.0.1 {}", other.port())
}

fn wait_until_unloaded(eye: &mut Connection) {
    wait::until("the module can be unloaded", SOON, || match eye.run("MODULE UNLOAD kvlock") {
        Value::Status(_) => Ok(()),
        refused => Err(refused.to_string()),
    });
}

fn a_grant_on_its_way_when_the_role_changes_leaves_nothing_behind(kind: Kind) {
    for dead in [false, true] {
        let mut stage = Stage::new(&kind);
        let other = Server::options().kind(&kind).without_module();
        let other = other.config("repl-diskless-sync-delay", 0).start();
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        let mut carol = stage.wait("k", "carol");
        let kill = if dead { kill(&bob) } else { "PING".to_owned() };
        stage.at_once(&["LOCK.RELEASE k alice", &kill, &follow(&other)]);
        if let Some(reply) = bob.connection.receive_or_closed() {
            assert!(!dead && (reply.is_error() || token_of(&reply) > 0), "{reply}");
        }
        expect_sent_away(&mut carol);
        observe::wait_for_replica(&mut other.connect(), &mut stage.eye);
        expect_same_data(&other, &stage.server);
        assert_eq!(stage.counted("grants_taken_back"), 0);
        wait_until_unloaded(&mut stage.eye);
        expect_unharmed(&stage.server);
    }
}

on_each_server!(a_grant_on_its_way_when_the_role_changes_leaves_nothing_behind,);
