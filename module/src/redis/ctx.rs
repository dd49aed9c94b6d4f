//! The context of a callback: what we may ask of the server while it calls us.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use redis_module::raw;

use super::api::{OK, optional, required};
use super::guard::log_line;
use super::text::{Arg, Text};

/// What the server gives us to talk to it, for the length of one callback.
#[derive(Debug)]
pub(crate) struct Ctx<'a> {
    pub(super) raw: *mut raw::RedisModuleCtx,
    lent: PhantomData<&'a ()>,
}

/// Some numbers of clients that have a connection, each at a place of its own: asked for by name, the
/// server makes a string each time. Numbers start at 1, and none is given to another client.
static CONNECTIONS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

static NOT_REPLICATED: AtomicU64 = AtomicU64::new(0);

/// How many changes the server did not pass on to replicas and files. Loading checks that it knows
/// the commands for it.
pub(crate) fn not_replicated() -> u64 {
    NOT_REPLICATED.load(Ordering::Relaxed)
}

fn sent_or_counted(sent: c_int, command: &CStr) {
    if sent != OK && NOT_REPLICATED.fetch_add(1, Ordering::Relaxed) == 0 {
        log_line(&format!("the server did not replicate {command:?}: replicas differ from here"));
    }
}

impl Ctx<'_> {
    /// # Safety
    ///
    /// `raw` is the context of a callback that runs for as long as this value lives.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, lent: PhantomData }
    }

    /// The database that the caller, or the event, is in.
    pub(crate) fn db(&self) -> i32 {
        let selected = required!(RedisModule_GetSelectedDb);
        // SAFETY: the context is alive.
        unsafe { selected(self.raw) }
    }

    /// Turns to another database, for the rest of this callback. Not for commands: there it
    /// would move the client.
    pub(crate) fn select(&self, db: i32) {
        let select = required!(RedisModule_SelectDb);
        // SAFETY: the context is alive.
        unsafe { select(self.raw, db) };
    }

    /// The number by which `CLIENT LIST` knows the caller.
    pub(crate) fn client_id(&self) -> u64 {
        let id = required!(RedisModule_GetClientId);
        // SAFETY: the context is alive.
        unsafe { id(self.raw) }
    }

    /// The number of the caller's connection; none for a stand-in of the server's, as scripts and
    /// other modules have.
    pub(crate) fn connection(&self) -> Option<u64> {
        self.has_connection().then(|| self.client_id())
    }

    /// The name of the caller's user; none if it has none, as other modules may.
    pub(crate) fn user(&self) -> Option<Text> {
        let name_of = required!(RedisModule_GetClientUserNameById);
        // SAFETY: the context is alive; a number that is no client's is answered with null.
        let name = unsafe { name_of(self.raw, self.client_id()) };
        // SAFETY: not freed elsewhere: the context has no automatic memory.
        if let Some(name) = unsafe { Text::from_raw(name) } {
            return Some(name);
        }
        if !self.acts_for_a_user() {
            return None;
        }
        let current = required!(RedisModule_GetCurrentUserName);
        // SAFETY: the context is alive and its client has a user: without one the server crashes.
        let name = unsafe { current(self.raw) };
        // SAFETY: as above.
        unsafe { Text::from_raw(name) }
    }

    /// Returns whether the caller's user may read a key.
    pub(crate) fn may_read(&self, key: Arg<'_>) -> bool {
        let (Some(find), Some(check), Some(free)) = (
            optional!(RedisModule_GetModuleUserFromUserName),
            optional!(RedisModule_ACLCheckKeyPermissions),
            optional!(RedisModule_FreeModuleUser),
        ) else {
            return false;
        };
        let Some(name) = self.user() else { return false };
        // SAFETY: the name is a string of the server, alive for this call.
        let user = unsafe { find(name.lend().raw) };
        if user.is_null() {
            return false;
        }
        let access = raw::REDISMODULE_CMD_KEY_ACCESS.cast_signed();
        // SAFETY: the user was just made and the key is alive.
        let allowed = unsafe { check(user, key.raw, access) } == OK;
        // SAFETY: the user was made for us, and this is its end.
        unsafe { free(user) };
        allowed
    }

    /// Returns random hex digits that cannot be guessed.
    pub(crate) fn random_digits<const N: usize>(&self) -> [u8; N] {
        let mut digits = [0; N];
        let fill = required!(RedisModule_GetRandomHexChars);
        // SAFETY: it writes that many bytes.
        unsafe { fill(digits.as_mut_ptr().cast(), N) };
        digits
    }

    fn has_flag(&self, flag: u32) -> bool {
        let flags = required!(RedisModule_GetContextFlags);
        // SAFETY: the context is alive.
        let flags = unsafe { flags(self.raw) };
        flags.cast_unsigned() & flag != 0
    }

    /// Returns whether the caller cannot be made to wait: it is in a transaction or a script, or is
    /// another module.
    ///
    /// A module may offer to wait for a promise of the reply, but if it takes the promise back
    /// the server crashes (seen on Redis 8.0 and Valkey 8.1): so that is not done either.
    pub(crate) fn must_not_block(&self) -> bool {
        // Where modules cannot offer that, all their calls deny blocking.
        let may_promise = optional!(RedisModule_CallReplyPromiseAbort).is_some();
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
            || may_promise && !self.has_connection()
    }

    /// Returns whether the caller is a client that `CLIENT LIST` knows, rather than a stand-in that
    /// the server made for a module's call.
    fn has_connection(&self) -> bool {
        let id = self.client_id();
        let place = usize::try_from(id).ok().and_then(|id| CONNECTIONS.get(id % CONNECTIONS.len()));
        if place.is_some_and(|known| known.load(Ordering::Relaxed) == id) {
            return true;
        }
        // `GetClientInfoById` finds the stand-in too, on Valkey 9.1. This one does not.
        let user = required!(RedisModule_GetClientUserNameById);
        // SAFETY: the context is alive.
        let user = unsafe { user(self.raw, id) };
        // SAFETY: the context has no automatic memory, so the name is ours.
        let has_one = unsafe { Text::from_raw(user) }.is_some();
        if let Some(place) = place.filter(|_| has_one) {
            place.store(id, Ordering::Relaxed);
        }
        has_one
    }

    /// Returns whether this server is a primary.
    pub(crate) fn is_primary(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    /// Returns whether this server is part of a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    /// The server's own date in microseconds since 1970, where it tells. Valkey 9 looks at the
    /// machine's clock once in a millisecond: until then, a lease set by that clock would be over
    /// for the server if the date had just gone back.
    pub(crate) fn date_us() -> Option<u64> {
        let date = optional!(RedisModule_Microseconds)?;
        // SAFETY: takes nothing and may be called at any time.
        u64::try_from(unsafe { date() }).ok()
    }

    /// Returns whether the server uses more memory than `maxmemory` allows.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_OOM)
    }

    /// Returns whether something may be written that no client asked for just now: not while the
    /// clients are paused, for a failover say. The server aborts otherwise.
    pub(crate) fn may_write_unasked(&self) -> bool {
        let avoid = required!(RedisModule_AvoidReplicaTraffic);
        // SAFETY: takes nothing and may be called at any time.
        unsafe { avoid() == 0 }
    }

    /// Sends a command to the replicas and to the append-only file. All that one callback sends
    /// is one transaction there.
    pub(super) fn replicate(&self, command: &CStr, args: &[Arg<'_>]) {
        let replicate = required!(RedisModule_Replicate);
        let sent = if let [key] = args {
            // SAFETY: "s" takes a live string, which is only retained, not changed.
            unsafe { replicate(self.raw, command.as_ptr(), c"s".as_ptr(), key.raw) }
        } else {
            // SAFETY: an `Arg` is laid out as one string pointer behind a zero-sized marker; "v"
            // takes an array of these and its length. The strings are only retained, not changed.
            unsafe {
                replicate(self.raw, command.as_ptr(), c"v".as_ptr(), args.as_ptr(), args.len())
            }
        };
        sent_or_counted(sent, command);
    }

    /// As [`Self::replicate`], a command of a key and a number.
    pub(super) fn replicate_number(&self, command: &CStr, key: Arg<'_>, number: u64) {
        let replicate = required!(RedisModule_Replicate);
        let (digits, format) = (&mut itoa::Buffer::new(), c"sb".as_ptr());
        let digits = digits.format(number);
        // SAFETY: "s" takes a live string, "b" the start of bytes, which are copied, and how many they
        // are: half the work of a number.
        let sent = unsafe {
            let (start, length) = (digits.as_ptr(), digits.len());
            replicate(self.raw, command.as_ptr(), format, key.raw, start, length)
        };
        sent_or_counted(sent, command);
    }

    /// As [`Self::replicate`], a key with a whole value, as `DUMP` would give it, and its end; 0 is
    /// none. `words` are `REPLACE` and `ABSTTL`.
    pub(super) fn replicate_value(&self, key: Arg<'_>, at: u64, dump: &[u8], words: [Arg<'_>; 2]) {
        let replicate = required!(RedisModule_Replicate);
        let ([replace, abs_ttl], length) = (words, dump.len());
        let (digits, format) = (&mut itoa::Buffer::new(), c"sbbss".as_ptr());
        let digits = digits.format(at);
        // SAFETY: as above.
        let sent = unsafe {
            replicate(
                self.raw,
                c"RESTORE".as_ptr(),
                format,
                key.raw,
                digits.as_ptr(),
                digits.len(),
                dump.as_ptr(),
                length,
                replace.raw,
                abs_ttl.raw,
            )
        };
        sent_or_counted(sent, c"RESTORE");
    }

    /// Tells the replicas, and no file, of a message that was published here: what
    /// [`Self::publish`] publishes stays on this server unless it is in a cluster.
    pub(crate) fn relay(&self, command: &CStr, channel: Arg<'_>, message: Arg<'_>) {
        let replicate = required!(RedisModule_Replicate);
        // SAFETY: "s" takes a live string each; "A" takes nothing and leaves the file out.
        let sent = unsafe {
            replicate(self.raw, command.as_ptr(), c"ssA".as_ptr(), channel.raw, message.raw)
        };
        sent_or_counted(sent, command);
    }

    /// Returns whether replicas are attached. Asks the server's `INFO`: not for every command.
    pub(crate) fn has_replicas(&self) -> bool {
        let ask = required!(RedisModule_GetServerInfo);
        // SAFETY: the context is alive, the name of the section a C string.
        let info = unsafe { ask(self.raw, c"replication".as_ptr()) };
        let read = required!(RedisModule_ServerInfoGetFieldUnsigned);
        // SAFETY: just made. The error pointer may be null; an error reads as 0.
        let replicas = unsafe { read(info, c"connected_slaves".as_ptr(), ptr::null_mut()) };
        let free = required!(RedisModule_FreeServerInfo);
        // SAFETY: made with this context, and not used again.
        unsafe { free(self.raw, info) };
        replicas > 0
    }

    /// Sends a keyspace event, if `notify-keyspace-events` includes its class.
    pub(super) fn notify(&self, class: c_int, event: &CStr, key: Arg<'_>) {
        let asked = required!(RedisModule_GetNotifyKeyspaceEvents);
        // SAFETY: takes nothing and may be called at any time.
        let asked = unsafe { asked() };
        let channels = raw::REDISMODULE_NOTIFY_KEYSPACE | raw::REDISMODULE_NOTIFY_KEYEVENT;
        if asked & class == 0 || asked & channels == 0 {
            return;
        }
        let notify = required!(RedisModule_NotifyKeyspaceEvent);
        // SAFETY: the context and the string are alive, the name is a C string.
        unsafe { notify(self.raw, class, event.as_ptr(), key.raw) };
    }

    /// Publishes a message; in a cluster on every node. Returns the number of receivers at this server.
    pub(crate) fn publish(&self, channel: Arg<'_>, message: Arg<'_>) -> i32 {
        let publish = required!(RedisModule_PublishMessage);
        // SAFETY: the context and both strings are alive.
        unsafe { publish(self.raw, channel.raw, message.raw) }
    }

    /// Publishes a message within the channel's shard. Returns how many got it here.
    pub(crate) fn publish_in_shard(&self, channel: Arg<'_>, message: Arg<'_>) -> i32 {
        let publish = required!(RedisModule_PublishMessageShard);
        // SAFETY: the context and both strings are alive.
        unsafe { publish(self.raw, channel.raw, message.raw) }
    }
}
