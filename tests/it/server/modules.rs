//! Another module calls our commands: from a command of its own, from a timer, and in the way that
//! may block. A call is not a client: it gets an answer at once, and the server lives on.

use crate::stage::expect_unharmed;
use harness::{Kind, Server, on_each_server};

/// There is room for some dozens on a server.
fn where_others_have_all_categories_commands_are_in_those_of_the_server(kind: Kind) {
    if kind.is_redis_7_0() {
        // It puts no command of a module in any.
        return;
    }
    let server = Server::options().kind(&kind).caller("categories").start();
    let connection = &mut server.connect();
    let categories = connection.run("ACL CAT").to_string();
    assert!(categories.contains("filler-ba") && !categories.contains("lock_admin"), "{categories}");
    let info = connection.run("COMMAND INFO lock.forcerelease")[0][6].to_string();
    for category in ["@write", "@admin", "@dangerous"] {
        assert!(info.contains(category), "not in {category}: {info}");
    }
    expect_unharmed(&server);
}

on_each_server!(where_others_have_all_categories_commands_are_in_those_of_the_server,);
