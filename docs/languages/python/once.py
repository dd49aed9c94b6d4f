"""A result that one process computes for all: LOCK.WAIT … UNLESS, then LOCK.RELEASE … STORE."""

import os, threading, time, uuid
import redis

URL = os.environ.get("KVLOCK_URL", "redis://127.0.0.1:6379/")
LEASE_MS = 30_000  # longer than the work takes; else renew it, as lock.py does
TTL_MS = 60_000  # how long the result is kept


def once(key, work):
    """Returns the value of the key. One caller computes it, the others wait for it."""
    lock, owner = f"{{{key}}}:lock", str(uuid.uuid4())
    # A separate connection, because the reply may take as long as another process works.
    with redis.Redis.from_url(URL, socket_timeout=None) as connection:
        while True:
            if (value := connection.get(key)) is not None:
                return value
            wait = ("LOCK.WAIT", lock, owner, LEASE_MS, 0, "HOLDS", 1, "UNLESS", key)
            if connection.execute_command(*wait) == b"ready":
                continue  # read it; if it has expired since, wait again
            try:
                value = work()
            except BaseException:
                connection.execute_command("LOCK.RELEASE", lock, owner, "ALL")  # the next waiter works
                raise
            # Stores nothing if the lease is over.
            connection.execute_command("LOCK.RELEASE", lock, owner, "STORE", key, value, "PX", TTL_MS)
            return value


works, results = [], []


def work():
    works.append(1)
    time.sleep(0.3)
    return b"12,345 orders"


key = f"report:{uuid.uuid4()}"
threads = [threading.Thread(target=lambda: results.append(once(key, work))) for _ in range(10)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert results == [b"12,345 orders"] * 10
print(f"worked: {len(works)} time, for {len(results)} who have the result")
