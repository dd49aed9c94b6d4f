use super::*;
use redis::{ErrorKind, Pipeline};
use std::task::{Context, Poll, Waker};

/// A connection that records what was sent, and answers each command with the prepared reply.
struct Canned {
    sent: Vec<Vec<u8>>,
    reply: Value,
}

impl ConnectionLike for Canned {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        self.sent.push(cmd.get_packed_command());
        let reply = self.reply.clone();
        Box::pin(async { Ok(reply) })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

fn answering(reply: Value) -> Canned {
    Canned { sent: Vec::new(), reply }
}

/// Returns the outcome of a future that is ready at once.
fn now<T>(mut future: RedisFuture<'_, T>) -> RedisResult<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a canned connection is always ready"),
    }
}

#[test]
fn a_method_sends_its_command_and_reads_its_reply() {
    let mut con = answering(Value::Array(vec![Value::Int(17), Value::Int(2)]));
    let grant = now(con.lock_acquire_options(
        "k",
        "alice",
        Duration::from_secs(1),
        AcquireOptions::default().holds(2),
    ));
    let grant = grant.unwrap().unwrap();
    assert_eq!((grant.token.value(), grant.holds), (17, 2));
    let sent: &[u8] = b"*6\r\n$12\r\nLOCK.ACQUIRE\r\n$1\r\nk\r\n$5\r\nalice\r\n$4\r\n1000\r\n\
                        $5\r\nHOLDS\r\n$1\r\n2\r\n";
    assert_eq!(con.sent, [sent]);
}

/// Returns the words of the last command.
fn words(con: &Canned) -> String {
    let sent = String::from_utf8_lossy(con.sent.last().expect("it was sent")).into_owned();
    let words = sent.split("\r\n").filter(|word| !word.starts_with(['$', '*']));
    words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

#[test]
fn options_name_results_and_further_locks() {
    let lease = Duration::from_secs(1);
    let (with, under): (&[&[u8]], &[&[u8]]) = (&[b"b", b"c"], &[b"top"]);
    let mut con = answering(Value::SimpleString("ready".to_owned()));
    let acquire = AcquireOptions::default().shared().with(with).under(under).unless(b"r");
    assert!(now(con.lock_acquire_options("k", "a", lease, acquire)).unwrap().is_none());
    assert_eq!(words(&con), "LOCK.ACQUIRE k a 1000 SHARED WITH 2 b c UNDER 1 top UNLESS r");
    let value = AcquireOptions::default().under(under).value(b"v");
    assert!(now(con.lock_wait_options("k", "a", lease, None, value)).unwrap().is_none());
    assert_eq!(words(&con), "LOCK.WAIT k a 1000 0 UNDER 1 top VALUE v");
    con.reply = Value::Int(0);
    let release = ReleaseOptions::default().with(with).under(under);
    assert_eq!(now(con.lock_release_options("k", "a", release)).unwrap(), Some(0));
    assert_eq!(words(&con), "LOCK.RELEASE k a WITH 2 b c UNDER 1 top");
    let storing = ReleaseOptions::default().all().store(b"r", b"v", Some(lease));
    assert_eq!(now(con.lock_release_options("k", "a", storing)).unwrap(), Some(0));
    assert_eq!(words(&con), "LOCK.RELEASE k a ALL STORE r v PX 1000");
    con.reply = Value::Int(1000);
    assert_eq!(now(con.lock_renew_set("k", "a", lease, with, &[])).unwrap(), Some(lease));
    assert_eq!(words(&con), "LOCK.RENEW k a 1000 WITH 2 b c");
}

#[test]
fn an_owner_can_set_a_value() {
    let mut con = answering(Value::Nil);
    let (lease, says) = (Duration::from_secs(1), AcquireOptions::default().value(b"a:1"));
    assert_eq!(now(con.lock_acquire_options("k", "a", lease, says)), Ok(None));
    assert_eq!(now(con.lock_wait_options("k", "a", lease, None, says)), Ok(None));
    assert_eq!(now(con.lock_renew_with_value("k", "a", lease, b"a:2")), Ok(None));
    for (sent, value) in con.sent.iter().zip(["a:1", "a:1", "a:2"]) {
        assert!(sent.ends_with(format!("VALUE\r\n$3\r\n{value}\r\n").as_bytes()));
    }
}

#[test]
fn the_profile_of_waits_is_read() {
    let fields = [("waited", 9), ("longest-wait", 5), ("hand-offs", 2), ("held", 4), ("missed", 0)];
    let fields = fields.map(|(name, of)| (Value::SimpleString(name.into()), Value::Int(of)));
    let key = (Value::SimpleString("key".into()), Value::BulkString(b"k".into()));
    let mut con =
        answering(Value::Array(vec![Value::Map([key].into_iter().chain(fields).collect())]));
    let [cost] = &*now(con.lock_profile(1, false)).unwrap() else { panic!("one") };
    assert_eq!((&*cost.key, cost.waited, cost.hand_offs), (&b"k"[..], Duration::from_millis(9), 2));
}

#[test]
fn an_invalid_duration_is_refused_and_nothing_is_sent() {
    let mut con = answering(Value::Nil);
    let refused = now(con.lock_wait("k", "alice", Duration::from_secs(1), Some(Duration::ZERO)));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Client);
    let refused = now(con.lock_renew("k", "alice", Duration::MAX));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Client);
    assert!(con.sent.is_empty());
}

#[test]
fn an_unexpected_reply_is_an_error() {
    let mut con = answering(Value::Okay);
    let kind = |outcome: RedisResult<()>| outcome.unwrap_err().kind();
    let lease = Duration::from_secs(1);
    assert_eq!(kind(now(con.lock_acquire("k", "a", lease)).map(drop)), ErrorKind::Parse);
    assert_eq!(
        kind(now(con.lock_release_options("k", "a", ReleaseOptions::default().all())).map(drop)),
        ErrorKind::Parse
    );
    assert_eq!(kind(now(con.lock_info("k")).map(drop)), ErrorKind::Parse);
    assert_eq!(kind(now(con.lock_list(1)).map(drop)), ErrorKind::Parse);
    assert_eq!(kind(now(con.lock_force_release("k")).map(drop)), ErrorKind::Parse);
}

#[test]
fn the_errors_of_the_server_keep_their_code() {
    let error = redis::make_extension_error("MISMATCH".into(), None);
    let errors = error.into_server_errors().unwrap();
    let mut con = answering(Value::ServerError(errors[0].1.clone()));
    let error = now(con.lock_release("k", "a")).unwrap_err();
    assert_eq!(error.code(), Some("MISMATCH"));
}

#[test]
fn futures_can_be_sent_to_other_threads() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let mut con = answering(Value::Int(1));
    let owner = String::from("alice");
    let renewal = sendable(con.lock_renew("k", &owner, Duration::from_secs(1)));
    drop(owner); // is sent, not borrowed
    assert!(now(renewal).is_ok());
}
