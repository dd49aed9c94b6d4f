//! The forms of the replies, and what the server tells about the commands.

use crate::asking::{LONG, acquire, arrival, token, wait_in_line};
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server};

/// Name, flags that it must have, and the names of its arguments.
const COMMANDS: [(&str, &[&str], &[&str]); 21] = [
    ("lock.acquire", &["write", "denyoom"], &["key", "owner", "lease-ms"]),
    ("lock.wait", &["write", "denyoom", "blocking"], &["key", "owner", "lease-ms", "timeout-ms"]),
    ("lock.release", &["write"], &["key", "owner"]),
    ("lock.renew", &["write"], &["key", "owner", "lease-ms"]),
    ("lock.cancel", &[], &["key", "owner"]),
    ("lock.info", &["readonly"], &["key"]),
    ("lock.list", &["readonly"], &[]),
    ("lock.profile", &["readonly"], &[]),
    ("lock.forcerelease", &["write", "admin"], &["key"]),
    ("sem.set", &["write", "denyoom"], &["key", "permits"]),
    ("sem.acquire", &["write", "denyoom"], &["key", "owner", "amount", "lease-ms"]),
    (
        "sem.wait",
        &["write", "denyoom", "blocking"],
        &["key", "owner", "permits", "lease-ms", "timeout-ms"],
    ),
    ("sem.release", &["write"], &["key", "owner"]),
    ("sem.renew", &["write"], &["key", "owner", "lease-ms"]),
    ("sem.cancel", &["write"], &["key", "owner"]),
    ("sem.info", &["readonly"], &["key"]),
    ("latch.set", &["write", "denyoom"], &["key", "count"]),
    ("latch.countdown", &["write"], &["key"]),
    ("latch.wait", &["readonly", "blocking"], &["key", "waiter", "timeout-ms"]),
    ("latch.cancel", &["write"], &["key", "waiter"]),
    ("latch.info", &["readonly"], &["key"]),
];

fn words(value: &Value) -> Vec<String> {
    value.elements().iter().map(Value::text).collect()
}

fn command_info_tells_flags_and_keys(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let connection = &mut server.connect();
    for (name, flags, arguments) in COMMANDS {
        let reply = connection.call(cmd!["COMMAND", "INFO", name]);
        let info = &reply[0];
        let seen = words(&info[2]);
        assert!(flags.iter().all(|flag| seen.iter().any(|s| s == flag)), "{name} has {seen:?}");
        if !flags.contains(&"denyoom") {
            assert!(!seen.iter().any(|s| s == "denyoom"), "{name} must work when memory is short");
        }
        let first_key = i64::from(arguments.first() == Some(&"key"));
        assert_eq!(info[3].integer(), first_key, "first key of {name}");
        assert_eq!(info[8].elements().len() as i64, first_key, "key specs of {name}");
        if first_key == 1 {
            let access = words(info[8][0].field("flags"));
            let right = if flags.contains(&"readonly") { "RO" } else { "RW" };
            assert!(access.iter().any(|flag| flag == right), "{name} has {access:?}");
            let mut command = cmd!["COMMAND", "GETKEYS", name];
            command.extend(arguments.iter().map(|argument| argument.as_bytes().to_vec()));
            assert_eq!(connection.call(command)[0], Value::bulk("key"), "{name}");
        }
    }
}

fn acl_categories_are_those_of_the_servers_own_commands(kind: Kind) {
    // Redis 7.0 puts no command of a module in any category.
    if kind.is_redis_7_0() {
        let server = Server::options().kind(&kind).start();
        let listed = words(&server.connect().run("ACL CAT write"));
        assert!(
            !listed.iter().any(|name| name.starts_with("lock.")),
            "7.0 has categories after all: {listed:?}"
        );
        return;
    }
    let server = Server::options().kind(&kind).start();
    let connection = &mut server.connect();
    for (category, names) in [
        (
            "write",
            &["lock.acquire", "lock.wait", "lock.release", "lock.renew", "lock.forcerelease"][..],
        ),
        ("write", &["sem.set", "sem.acquire", "sem.wait", "sem.release", "sem.renew"]),
        ("write", &["sem.cancel", "latch.set", "latch.countdown", "latch.cancel"]),
        ("read", &["lock.info", "sem.info", "latch.wait", "latch.info"]),
        ("blocking", &["lock.wait", "sem.wait", "latch.wait"]),
        ("dangerous", &["lock.forcerelease"]),
        ("admin", &["lock.forcerelease"]),
    ] {
        // `ACL CAT` of Valkey 8.0 lists no command of a module, though it is in the category.
        for name in names {
            let info = connection.call(cmd!["COMMAND", "INFO", name]);
            let listed = words(&info[0][6]);
            let category = format!("@{category}");
            assert!(listed.contains(&category), "{name} is not in {category}: {listed:?}");
        }
    }
}

/// The user of `docs/operations.md` who is let in by a category.
fn user_by_category() -> String {
    let page = harness::kind::workspace().join("docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    page.lines().find(|line| line.ends_with(" +@lock")).expect("the line").to_owned()
}

fn a_category_has_what_an_application_needs_and_another_the_rest(kind: Kind) {
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
        // The number of arguments is looked at before the rights.
        call.extend((1..info[0][1].integer()).map(|_| b"orders:1".to_vec()));
        let denied = shop.call(call).to_string().contains("NOPERM");
        assert_eq!(denied, has("@dangerous"), "{name}");
    }
    // Loaded again, it finds its categories there, and the user has its rights.
    assert_eq!(control.run("MODULE UNLOAD kvlock"), Value::Status("OK".into()));
    let path = harness::module_file::path();
    let loaded = control.call(cmd!["MODULE", "LOAD", path.to_str().unwrap()]);
    assert_eq!(loaded, Value::Status("OK".into()));
    assert_eq!(control.run(&user_by_category()), Value::Status("OK".into()));
    let mut shop = login();
    assert_eq!(shop.run("LOCK.RELEASE orders:1 alice"), Value::Integer(0));
    assert!(shop.run("LOCK.PROFILE").to_string().contains("NOPERM"));
}

/// The nil of RESP2 is one and the same, the null bulk, whether it comes at once or after waiting.
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

fn info_counts_what_happened(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut a, mut b) = (server.connect(), server.connect());
    let count = |connection: &mut Connection, name: &str| {
        observe::info_number(connection, &format!("kvlock_{name}"))
    };
    acquire(&mut a, "k", "alice");
    acquire(&mut a, "k", "alice");
    acquire(&mut a, "k", "bob");
    wait_in_line(&mut b, &mut a, "k", "bob");
    assert_eq!(count(&mut a, "waiters"), 1);
    a.run("LOCK.RELEASE k alice ALL");
    token(&arrival(&mut b));
    wait_in_line(&mut b, &mut a, "k", "carol");
    a.run("LOCK.CANCEL k carol");
    assert_eq!(arrival(&mut b), Value::Nil);
    b.call(cmd!["LOCK.WAIT", "k", "carol", LONG, 1]);
    a.run("LOCK.FORCERELEASE k");
    for (name, expected) in [
        ("granted", 2),
        ("reentered", 1),
        ("released", 1),
        ("handed_off", 1),
        ("waiters", 0),
        ("waiters_peak", 1),
        ("timeouts", 1),
        ("cancelled", 1),
        ("forced_releases", 1),
        ("grants_taken_back", 0),
        ("caught_panics", 0),
    ] {
        assert_eq!(count(&mut a, name), expected, "{name}");
    }
}

on_each_server!(
    command_info_tells_flags_and_keys,
    acl_categories_are_those_of_the_servers_own_commands,
    a_category_has_what_an_application_needs_and_another_the_rest,
    nil_in_resp2_is_the_null_bulk,
    info_counts_what_happened,
);
