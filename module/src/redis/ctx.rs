//! The context of a callback: functions of the server that the module may call during the callback.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use redis_module::raw;

use super::api::{OK, optional, required};
use super::guard::log_line;
use super::text::{Arg, Text};

/// Context that the server lends the module for one callback.
#[derive(Debug)]
pub(crate) struct Ctx<'a> {
    pub(super) raw: *mut raw::RedisModuleCtx,
    lent: PhantomData<&'a ()>,
}

/// Ids of some clients that are known to have a connection. Each id is at the index that equals the id modulo
/// the length. This is a cache, because each look-up in the server allocates a string. Ids start at 1 and are
/// never reused.
static CONNECTIONS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

static NOT_REPLICATED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of commands that the server refused to propagate to replicas and the append-only file.
/// Normally 0, because the module is loaded only if the server knows the commands.
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

    /// Returns the database of the caller or of the event.
    pub(crate) fn db(&self) -> i32 {
        let selected = required!(RedisModule_GetSelectedDb);
        // SAFETY: the context is alive.
        unsafe { selected(self.raw) }
    }

    /// Selects another database for the rest of this callback. Must not be called in a command, because the
    /// selection would change the client's database.
    pub(crate) fn select(&self, db: i32) {
        let select = required!(RedisModule_SelectDb);
        // SAFETY: the context is alive.
        unsafe { select(self.raw, db) };
    }

    /// Returns the caller's client id.
    pub(crate) fn client_id(&self) -> u64 {
        let id = required!(RedisModule_GetClientId);
        // SAFETY: the context is alive.
        unsafe { id(self.raw) }
    }

    /// Returns the client id of the caller's connection. `None` if the caller is a script or another module:
    /// for these the server uses a client without a connection.
    pub(crate) fn connection(&self) -> Option<u64> {
        self.has_connection().then(|| self.client_id())
    }

    /// Returns the name of the caller's user. `None` if the caller has no user, as is possible for other
    /// modules.
    pub(crate) fn user(&self) -> Option<Text> {
        let name_of = required!(RedisModule_GetClientUserNameById);
        // SAFETY: the context is alive; for an id without a client, the function returns null.
        let name = unsafe { name_of(self.raw, self.client_id()) };
        // SAFETY: `name` is null, or a string that nothing else frees: the context has no automatic memory.
        if let Some(name) = unsafe { Text::from_raw(name) } {
            return Some(name);
        }
        if !self.acts_for_a_user() {
            return None;
        }
        let current = required!(RedisModule_GetCurrentUserName);
        // SAFETY: the context is alive, and its client has a user. Without a user, the server would crash.
        let name = unsafe { current(self.raw) };
        // SAFETY: `name` is null, or a string that nothing else frees, as above.
        unsafe { Text::from_raw(name) }
    }

    /// Returns whether the caller's user may read a key. `false` if the server has no functions to find out.
    pub(crate) fn may_read(&self, key: Arg<'_>) -> bool {
        let (Some(find), Some(check), Some(free)) = (
            optional!(RedisModule_GetModuleUserFromUserName),
            optional!(RedisModule_ACLCheckKeyPermissions),
            optional!(RedisModule_FreeModuleUser),
        ) else {
            return false;
        };
        let Some(name) = self.user() else { return false };
        // SAFETY: `name` is a string of the server, which lives until this function returns.
        let user = unsafe { find(name.lend().raw) };
        if user.is_null() {
            return false;
        }
        let access = raw::REDISMODULE_CMD_KEY_ACCESS.cast_signed();
        // SAFETY: `user` was just made, and the key is a live string.
        let allowed = unsafe { check(user, key.raw, access) } == OK;
        // SAFETY: `user` was made by the call of `find`, and is not used after this call.
        unsafe { free(user) };
        allowed
    }

    /// Returns random hex digits that cannot be guessed.
    pub(crate) fn random_digits<const N: usize>(&self) -> [u8; N] {
        let mut digits = [0; N];
        let fill = required!(RedisModule_GetRandomHexChars);
        // SAFETY: `digits` has room for the `N` bytes that the server writes.
        unsafe { fill(digits.as_mut_ptr().cast(), N) };
        digits
    }

    fn has_flag(&self, flag: u32) -> bool {
        let flags = required!(RedisModule_GetContextFlags);
        // SAFETY: the context is alive.
        let flags = unsafe { flags(self.raw) };
        flags.cast_unsigned() & flag != 0
    }

    /// Returns whether the caller must not be blocked: it is in a transaction or a script, or it is another
    /// module.
    ///
    /// Another module may allow blocking, and then gets a promise of the reply. If that module aborts the
    /// promise, the server crashes (seen on Redis 8.0 and Valkey 8.1). So a call by another module is never
    /// blocked.
    pub(crate) fn must_not_block(&self) -> bool {
        // Without this function, modules cannot get a promise, and all their calls deny blocking.
        let may_promise = optional!(RedisModule_CallReplyPromiseAbort).is_some();
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
            || may_promise && !self.has_connection()
    }

    /// Returns whether the caller is a client in `CLIENT LIST`, rather than a client that the server created
    /// for a script or for a call by a module.
    fn has_connection(&self) -> bool {
        let id = self.client_id();
        let place = usize::try_from(id).ok().and_then(|id| CONNECTIONS.get(id % CONNECTIONS.len()));
        if place.is_some_and(|known| known.load(Ordering::Relaxed) == id) {
            return true;
        }
        // On Valkey 9.1, `GetClientInfoById` also finds clients that were created for a call.
        // `GetClientUserNameById` does not.
        let user = required!(RedisModule_GetClientUserNameById);
        // SAFETY: the context is alive.
        let user = unsafe { user(self.raw, id) };
        // SAFETY: `user` is null, or a string that nothing else frees: the context has no automatic memory.
        let has_one = unsafe { Text::from_raw(user) }.is_some();
        if let Some(place) = place.filter(|_| has_one) {
            place.store(id, Ordering::Relaxed);
        }
        has_one
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    /// Returns the server's own wall clock in microseconds since 1970. `None` if the server has no function
    /// for it.
    ///
    /// Needed because Valkey 9 reads the machine's clock only once in a millisecond. If that clock is set
    /// back, the server notices only at its next reading. Until then, a lease computed from the machine's
    /// clock may already have ended for the server.
    pub(crate) fn date_us() -> Option<u64> {
        let date = optional!(RedisModule_Microseconds)?;
        // SAFETY: the function takes no arguments and may be called at any time.
        u64::try_from(unsafe { date() }).ok()
    }

    /// Returns whether the server uses more memory than `maxmemory` allows.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_OOM)
    }

    /// Returns whether the module may write outside a command. `false` while clients are paused, for example
    /// for a failover: a write would then abort the server.
    pub(crate) fn may_write_unasked(&self) -> bool {
        let avoid = required!(RedisModule_AvoidReplicaTraffic);
        // SAFETY: the function takes no arguments and may be called at any time.
        unsafe { avoid() == 0 }
    }

    /// Sends a command to the replicas and to the append-only file. All commands of one callback are one
    /// transaction there.
    pub(super) fn replicate(&self, command: &CStr, args: &[Arg<'_>]) {
        let replicate = required!(RedisModule_Replicate);
        let sent = if let [key] = args {
            // SAFETY: the context is alive. "s" takes the key, which is a live string. The server retains the
            // string and does not change it.
            unsafe { replicate(self.raw, command.as_ptr(), c"s".as_ptr(), key.raw) }
        } else {
            // SAFETY: the context is alive. "v" takes an array of string pointers and its length, and `Arg`
            // has the layout of a string pointer. The server retains the strings and does not change them.
            unsafe {
                replicate(self.raw, command.as_ptr(), c"v".as_ptr(), args.as_ptr(), args.len())
            }
        };
        sent_or_counted(sent, command);
    }

    /// Sends a command with a key and a number, as [`Self::replicate`] does.
    pub(super) fn replicate_number(&self, command: &CStr, key: Arg<'_>, number: u64) {
        let replicate = required!(RedisModule_Replicate);
        let (digits, format) = (&mut itoa::Buffer::new(), c"sb".as_ptr());
        let digits = digits.format(number);
        // SAFETY: the context is alive. "s" takes the key, which is a live string. "b" takes the start and
        // the length of the digits, which the server copies. Passing digits costs half as much as passing a
        // number.
        let sent = unsafe {
            let (start, length) = (digits.as_ptr(), digits.len());
            replicate(self.raw, command.as_ptr(), format, key.raw, start, length)
        };
        sent_or_counted(sent, command);
    }

    /// Sends `RESTORE` of a key with a value in the format of `DUMP`, as [`Self::replicate`] does. `at` is
    /// the expiry time of the key in milliseconds since 1970, 0 for none. `words` are `REPLACE` and `ABSTTL`.
    pub(super) fn replicate_value(&self, key: Arg<'_>, at: u64, dump: &[u8], words: [Arg<'_>; 2]) {
        let replicate = required!(RedisModule_Replicate);
        let ([replace, abs_ttl], length) = (words, dump.len());
        let (digits, format) = (&mut itoa::Buffer::new(), c"sbbss".as_ptr());
        let digits = digits.format(at);
        // SAFETY: the context is alive. Each "s" takes a live string. Each "b" takes the start and the length
        // of bytes, which the server copies.
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

    /// Sends a published message to the replicas, but not to the append-only file. Needed outside a cluster,
    /// where [`Self::publish`] only reaches subscribers of this server.
    pub(crate) fn relay(&self, command: &CStr, channel: Arg<'_>, message: Arg<'_>) {
        let replicate = required!(RedisModule_Replicate);
        // SAFETY: the context is alive, and each "s" takes a live string. "A" takes no argument; it excludes
        // the append-only file.
        let sent = unsafe {
            replicate(self.raw, command.as_ptr(), c"ssA".as_ptr(), channel.raw, message.raw)
        };
        sent_or_counted(sent, command);
    }

    /// Returns whether replicas are attached. Reads the server's `INFO`, so it is too slow for every command.
    pub(crate) fn has_replicas(&self) -> bool {
        let ask = required!(RedisModule_GetServerInfo);
        // SAFETY: the context is alive, and the name of the section is a C string.
        let info = unsafe { ask(self.raw, c"replication".as_ptr()) };
        let read = required!(RedisModule_ServerInfoGetFieldUnsigned);
        // SAFETY: `info` was just made. The error pointer may be null; on an error the server returns 0.
        let replicas = unsafe { read(info, c"connected_slaves".as_ptr(), ptr::null_mut()) };
        let free = required!(RedisModule_FreeServerInfo);
        // SAFETY: `info` was made with this context, and is not used again.
        unsafe { free(self.raw, info) };
        replicas > 0
    }

    /// Sends a keyspace event, if `notify-keyspace-events` includes its class and at least one of K and E.
    pub(super) fn notify(&self, class: c_int, event: &CStr, key: Arg<'_>) {
        let asked = required!(RedisModule_GetNotifyKeyspaceEvents);
        // SAFETY: the function takes no arguments and may be called at any time.
        let asked = unsafe { asked() };
        let channels = raw::REDISMODULE_NOTIFY_KEYSPACE | raw::REDISMODULE_NOTIFY_KEYEVENT;
        if asked & class == 0 || asked & channels == 0 {
            return;
        }
        let notify = required!(RedisModule_NotifyKeyspaceEvent);
        // SAFETY: the context and the key are alive, and the name of the event is a C string.
        unsafe { notify(self.raw, class, event.as_ptr(), key.raw) };
    }

    /// Publishes a message to the subscribers of this server, or in a cluster to the subscribers of every
    /// node. Returns the number of receivers at this server.
    pub(crate) fn publish(&self, channel: Arg<'_>, message: Arg<'_>) -> i32 {
        let publish = required!(RedisModule_PublishMessage);
        // SAFETY: the context and both strings are alive.
        unsafe { publish(self.raw, channel.raw, message.raw) }
    }

    /// Publishes a message within the channel's shard. Returns the number of receivers at this server.
    pub(crate) fn publish_in_shard(&self, channel: Arg<'_>, message: Arg<'_>) -> i32 {
        let publish = required!(RedisModule_PublishMessageShard);
        // SAFETY: the context and both strings are alive.
        unsafe { publish(self.raw, channel.raw, message.raw) }
    }
}
