"""Locks of kvlock from Python: acquire, wait, renew, release, and a token for every write."""

import os, threading, time, uuid
import redis

URL = os.environ.get("KVLOCK_URL", "redis://127.0.0.1:6379/")
LEASE_MS = 1_000  # the lock stays taken this long if its holder dies; 10,000 to 30,000 is usual
OFFER_MS = 500  # lease of a grant until the client renews it, because the client may have died; 2,000 is usual


def now_ms():  # a clock that also runs while the machine is suspended (Linux)
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


class Lock:
    def __init__(self, key):
        self.key, self.owner = key, f"{uuid.uuid4()}:1"
        self.token, self.valid_until, self.done = None, 0, threading.Event()
        self.redis = redis.Redis.from_url(URL, socket_timeout=LEASE_MS / 3000)

    def acquire(self):
        """Takes the lock if it is free."""
        return self._take(self.redis, "LOCK.ACQUIRE", self.key, self.owner, OFFER_MS, "HOLDS", 1)

    def wait(self, timeout_ms):
        """Takes the lock, or waits for it. Uses a separate connection, because the reply may take that long."""
        with redis.Redis.from_url(URL, socket_timeout=timeout_ms / 1000 + 5) as waiting:
            return self._take(waiting, "LOCK.WAIT", self.key, self.owner, OFFER_MS, timeout_ms, "HOLDS", 1)

    def _take(self, connection, *command):
        try:
            grant = connection.execute_command(*command)
            if grant is None or not self.renew():  # the full lease starts here
                return False
        except redis.RedisError:  # the outcome is unknown: make sure that we do not hold it
            self.redis.execute_command("LOCK.CANCEL", self.key, self.owner)
            self.redis.execute_command("LOCK.RELEASE", self.key, self.owner, "ALL")
            raise
        self.token, self.done = grant[0], threading.Event()
        self.watchdog = threading.Thread(target=self._watch, daemon=True)
        self.watchdog.start()
        return True

    def renew(self):
        """Renews the lease. False: the lock is lost."""
        sent = now_ms()  # the lease counts from before the command was sent
        held = self.redis.execute_command("LOCK.RENEW", self.key, self.owner, LEASE_MS) is not None
        self.valid_until = sent + LEASE_MS * 0.99 if held else 0
        return held

    def held(self):
        """True if the lock is certainly held. Check before each step of the work."""
        return now_ms() < self.valid_until

    def _watch(self):
        while self.held() and not self.done.wait(LEASE_MS / 3000):
            try:
                self.renew()
            except redis.RedisError:
                pass  # tries again while the lease lasts

    def release(self):
        """Releases the lock, which then goes to the first waiter. False: it was lost before."""
        self.done.set()
        self.watchdog.join()  # no renewal comes after the release
        self.valid_until = 0
        return self.redis.execute_command("LOCK.RELEASE", self.key, self.owner) is not None


class Store:
    """The resource that the lock guards. It remembers the newest token and refuses older ones."""

    newest = (0, "")

    def write(self, token, owner, text):
        if token < self.newest[0] or (token == self.newest[0] and owner != self.newest[1]):
            return print(f"refused: {text}")
        self.newest = (token, owner)
        print(f"written: {text}")


store, alice, bob = Store(), Lock("orders:42"), Lock("orders:42")
assert alice.acquire()
assert not bob.acquire()


def bob_works():
    assert bob.wait(10_000)
    store.write(bob.token, bob.owner, "by bob, who waited")
    assert bob.release()


thread = threading.Thread(target=bob_works)
thread.start()
time.sleep(1.5 * LEASE_MS / 1000)  # longer than the lease: it is renewed
assert alice.held()
store.write(alice.token, alice.owner, "by alice, who holds the lock")
assert alice.release()
thread.join()
store.write(alice.token, alice.owner, "by alice, who comes too late")
