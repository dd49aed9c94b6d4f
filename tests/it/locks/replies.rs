//! Types of replies, and the commands in `COMMAND INFO` and in ACL rules.

use crate::asking::{acquire, arrival, token};
use harness::agree::expect_unharmed;
use harness::{Kind, Server, Value, cmd, observe, on_each_server};
use std::collections::BTreeSet;

/// Name of a command, flags that it must have, and whether it has a key.
const COMMANDS: [(&str, &str, bool); 27] = [
    ("lock.acquire", "write denyoom", true),
    ("lock.wait", "write denyoom blocking", true),
    ("lock.release", "write", true),
    ("lock.renew", "write", true),
    ("lock.cancel", "", true),
    ("lock.info", "readonly", true),
    ("lock.list", "readonly", false),
    ("lock.profile", "readonly", false),
    ("lock.forcerelease", "write admin", true),
    ("sem.set", "write denyoom", true),
    ("sem.acquire", "write denyoom", true),
    ("sem.wait", "write denyoom blocking", true),
    ("sem.release", "write", true),
    ("sem.renew", "write", true),
    ("sem.cancel", "write", true),
    ("sem.info", "readonly", true),
    ("latch.set", "write denyoom", true),
    ("latch.countdown", "write denyoom", true),
    ("latch.wait", "readonly denyoom blocking", true),
    ("latch.cancel", "write", true),
    ("latch.info", "readonly", true),
    ("lock.observe", "readonly denyoom fast", true),
    ("lock.unobserve", "readonly fast", true),
    ("session.open", "denyoom fast", false),
    ("session.next", "blocking", false),
    ("session.close", "fast", false),
    ("session.list", "readonly", false),
];

fn words(value: &Value) -> Vec<String> {
    value.elements().iter().map(Value::text).collect()
}

fn command_info_has_flags_keys_and_categories(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let connection = &mut server.connect();
    let names: BTreeSet<_> = COMMANDS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let ours = harness::docs::ours(connection);
    let ours: BTreeSet<_> = ours.iter().map(|it| it.name.to_lowercase()).collect();
    assert_eq!(names, ours, "a row for each command");
    for (name, flags, has_key) in COMMANDS {
        let reply = connection.call(cmd!["COMMAND", "INFO", name]);
        let info = &reply[0];
        let (seen, listed) = (words(&info[2]), words(&info[6]));
        for flag in flags.split_whitespace() {
            assert!(seen.iter().any(|it| it == flag), "{name} has {seen:?}");
            let categories = match flag {
                // Redis 7.0 puts no command of a module in any category.
                _ if kind.is_redis_7_0() => &[][..],
                "write" => &["@write"],
                "readonly" => &["@read"],
                "blocking" => &["@blocking"],
                "admin" => &["@admin", "@dangerous"],
                _ => &[],
            };
            for category in categories {
                assert!(listed.iter().any(|it| it == category), "{name} is in {listed:?}");
            }
        }
        if !flags.contains("denyoom") {
            assert!(!seen.iter().any(|s| s == "denyoom"), "{name} must work when memory is short");
        }
        assert_eq!(info[3].integer(), i64::from(has_key), "first key of {name}");
        // `WITH` and `UNDER` name keys, and `UNLESS` and `STORE` each name one.
        let sets = ["lock.acquire", "lock.wait", "lock.release", "lock.renew"].contains(&name);
        let result = ["lock.acquire", "lock.wait", "lock.release"].contains(&name);
        let keys = usize::from(has_key) + 2 * usize::from(sets) + usize::from(result);
        assert_eq!(info[8].elements().len(), keys, "key specs of {name}");
        if has_key {
            let access = words(info[8][0].field("flags"));
            let right = if flags.contains("readonly") { "RO" } else { "RW" };
            assert!(access.iter().any(|flag| flag == right), "{name} has {access:?}");
            let mut command = cmd!["COMMAND", "GETKEYS", name, "key"];
            // The minimum number of arguments.
            command.extend((2..info[1].integer().abs()).map(|_| b"1".to_vec()));
            assert_eq!(connection.call(command)[0], Value::bulk("key"), "{name}");
        }
    }
}

/// The command in `docs/operations.md` that makes a user with the rights of the category `lock`.
fn user_by_category() -> String {
    let page = harness::kind::workspace().join("docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    page.lines().find(|line| line.ends_with(" +@lock")).expect("the line").to_owned()
}

fn one_category_has_the_commands_of_applications_and_another_the_rest(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut control = server.connect();
    let made = control.run(&user_by_category());
    if kind.is_redis_7_0() {
        assert!(made.is_error(), "7.0 lets modules add categories after all: {made}");
        return;
    }
    assert_eq!(made, Value::Status("OK".into()));
    let login = || {
        let mut shop = server.connect();
        assert_eq!(shop.run("AUTH shop secret"), Value::Status("OK".into()));
        shop
    };
    let mut shop = login();
    token(&shop.run("LOCK.ACQUIRE orders:1 alice 60000"));
    let ours = harness::docs::ours(&mut control);
    for name in ours.iter().map(|it| it.name.to_lowercase()) {
        let info = control.call(cmd!["COMMAND", "INFO", &name]);
        let listed = words(&info[0][6]);
        let has = |category: &str| listed.iter().any(|it| it == category);
        assert_eq!(has("@lock_admin"), has("@dangerous"), "{name}: {listed:?}");
        assert_eq!(has("@lock"), !has("@dangerous"), "{name}: {listed:?}");
        let mut call = cmd![&name];
        // The server checks the number of arguments before the rights.
        call.extend((1..info[0][1].integer().abs()).map(|_| b"orders:1".to_vec()));
        let denied = shop.call(call).to_string().contains("NOPERM");
        assert_eq!(denied, has("@dangerous"), "{name}");
    }
    // When the module is loaded again, its categories can be used as before.
    assert_eq!(control.run("MODULE UNLOAD kvlock"), Value::Status("OK".into()));
    let path = harness::module_file::path();
    let loaded = control.call(cmd!["MODULE", "LOAD", path.to_str().unwrap()]);
    assert_eq!(loaded, Value::Status("OK".into()));
    assert_eq!(control.run(&user_by_category()), Value::Status("OK".into()));
    let mut shop = login();
    assert_eq!(shop.run("LOCK.RELEASE orders:1 alice"), Value::Integer(0));
    assert!(shop.run("LOCK.PROFILE").to_string().contains("NOPERM"));
}

/// Some servers store ACL rules as text and crash if a rule names a command that is removed.
fn a_module_named_in_an_acl_rule_stays_loaded(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let control = &mut server.connect();
    for rule in ["+lock.acquire", "+session.list", "+@all -sem.set", "-@all -lock.info"] {
        control.run(&format!("ACL SETUSER bob on nopass ~* {rule}"));
        if !kind.is_redis_7_0() {
            assert!(control.run("MODULE UNLOAD kvlock").is_error(), "{rule}");
            // Valkey 9.1 refuses before it asks the module.
            let whys = [
                "the ACL rules of user \"bob\" name a command of kvlock",
                "An ACL user has reference to rule",
            ];
            let log = server.log();
            assert!(whys.iter().any(|why| log.contains(why)), "{rule}: {log}");
            // This is what the log recommends.
            control.run("ACL SETUSER bob -@all +@lock");
        }
        assert_eq!(control.run("MODULE UNLOAD kvlock"), Value::Status("OK".into()), "{rule}");
        let path = harness::module_file::path();
        control.call(cmd!["MODULE", "LOAD", path.to_str().unwrap()]);
        token(&control.run(&format!("LOCK.ACQUIRE k{} alice 1000", rule.len())));
    }
    expect_unharmed(&server);
}

/// Without `ACL LIST` the module cannot know whether a rule names one of its commands.
fn a_module_stays_loaded_if_it_cannot_read_acl_rules(kind: Kind) {
    if kind.is_redis_7_0() {
        // Its rules do not name commands.
        return;
    }
    let options = Server::options().kind(&kind).config("rename-command", "ACL \"\"");
    let server = options.config("user", "bob on nopass ~* -@all +lock.acquire").start();
    assert!(server.connect().run("MODULE UNLOAD kvlock").is_error());
    let log = server.log();
    assert!(
        log.contains("the server has no command ACL") || log.contains("An ACL user has"),
        "{log}"
    );
    expect_unharmed(&server);
}

/// A server has room for a few dozen categories. Here another module has taken all of it.
fn without_free_categories_commands_are_in_the_servers_categories(kind: Kind) {
    let server = Server::options().kind(&kind).caller("categories").start();
    let connection = &mut server.connect();
    if kind.is_redis_7_0() {
        // Redis 7.0 puts no command of a module in a category.
        let info = connection.run("COMMAND INFO lock.forcerelease")[0][6].to_string();
        assert!(!info.contains('@'), "{info}");
        return expect_unharmed(&server);
    }
    let categories = connection.run("ACL CAT").to_string();
    assert!(categories.contains("filler-ba") && !categories.contains("lock_admin"), "{categories}");
    let info = connection.run("COMMAND INFO lock.forcerelease")[0][6].to_string();
    for category in ["@write", "@admin", "@dangerous"] {
        assert!(info.contains(category), "not in {category}: {info}");
    }
    expect_unharmed(&server);
}

/// In RESP3 a reply with field names is a map. The transcripts do not distinguish a map from an array.
#[test]
fn replies_with_field_names_are_maps_in_resp3() {
    let server = Server::start();
    let (mut a, mut b) = (server.connect_resp(3), server.connect());
    for line in ["LOCK.ACQUIRE k alice 60000", "SEM.SET s 1", "LATCH.SET l 1", "SESSION.OPEN 60000"]
    {
        assert!(!a.run(line).is_error(), "{line}");
    }
    // One owner has waited, and one still waits.
    for owner in ["bob", "carol"] {
        b.send(cmd!["LOCK.WAIT", "k", owner, 60_000, 0]);
        observe::wait_for_waiters(&mut a, "k", 1);
        if owner == "bob" {
            assert_eq!(a.run("LOCK.FORCERELEASE k"), Value::Integer(1));
            token(&arrival(&mut b));
        }
    }
    for line in ["LOCK.INFO k", "SEM.INFO s", "LATCH.INFO l"] {
        assert!(matches!(a.run(line), Value::Map(_)), "{line}");
    }
    for line in ["LOCK.LIST", "LOCK.PROFILE", "SESSION.LIST"] {
        assert!(matches!(a.run(line)[0], Value::Map(_)), "{line}");
    }
}

/// In RESP2 a nil reply is a null bulk string, whether it is sent at once or after a wait.
fn nil_in_resp2_is_the_null_bulk(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut a, b) = (server.connect(), server.connect());
    acquire(&mut a, "k", "alice");
    let (mut b, mut raw) = (b, [0; 5]);
    for line in ["LOCK.ACQUIRE k bob 1000", "LOCK.WAIT k bob 1000 20"] {
        b.send(harness::resp::split(line).unwrap());
        b.read_raw(&mut raw);
        assert_eq!(&raw, b"$-1\r\n", "{line}");
    }
}

on_each_server!(
    command_info_has_flags_keys_and_categories,
    one_category_has_the_commands_of_applications_and_another_the_rest,
    without_free_categories_commands_are_in_the_servers_categories,
    a_module_named_in_an_acl_rule_stays_loaded,
    a_module_stays_loaded_if_it_cannot_read_acl_rules,
    nil_in_resp2_is_the_null_bulk,
);
