"""Load through redis-py's Lock. ../README.md describes the arguments and the output."""

import os, sys, threading, time
import redis

args = dict(argument.split("=", 1) for argument in sys.argv[1:])
number = lambda name: int(args[name])
now = time.monotonic_ns
newest_owner = None
starts_at = ends_at = 0
start = threading.Event()


def sleep_until(moment):
    left = moment - now()
    if left > 0:
        time.sleep(left / 1e9)


class Task(threading.Thread):
    def __init__(self, task, client):
        super().__init__(daemon=True)
        self.task, self.client = task, client
        self.cycles, self.warm = [], threading.Event()

    def lock(self, key):
        return self.client.lock(key, timeout=number("lease_ms") / 1000)

    def run(self):
        global newest_owner
        own = self.lock(f"{args['key']}:warm:{args['process']}:{self.task}")
        enough = now() + number("warm_ms") * 1_000_000
        while True:
            with own:
                pass
            if now() >= enough:
                break
        self.warm.set()
        start.wait()
        sleep_until(starts_at)

        key = f"{args['key']}:{self.task % number('keys')}"
        hold_s = number("hold_us") / 1e6
        abandons, yields = args.get("release") == "no", args.get("yields") == "yes"
        while now() < ends_at:
            # Times of a cycle: request, grant, release, and the reply to the release; 0 for events that have not happened.
            cycle = [now(), 0, 0, 0]
            self.cycles.append(cycle)
            lock = self.lock(key)
            lock.acquire()
            cycle[1] = now()
            newest_owner = self.task
            if hold_s:
                time.sleep(hold_s)
            cycle[2] = now()
            if not abandons:
                lock.release()
            cycle[3] = now()
            while yields and newest_owner == self.task:
                time.sleep(0.0001)


# A pool with at least one connection for each task, as its documentation requires with threads.
clients = [redis.Redis.from_url(args["url"]) for _ in range(number("clients"))]
tasks = [Task(task, clients[task // number("keys") % len(clients)]) for task in range(number("tasks"))]
for task in tasks:
    task.start()
for task in tasks:
    task.warm.wait()
print("ready", redis.__version__, flush=True)
_, starts_at, ends_at = sys.stdin.readline().split()
starts_at, ends_at = int(starts_at), int(ends_at)
start.set()
sleep_until(ends_at)
lines = [f"{task.task} {a} {b} {c} {d}\n" for task in tasks for a, b, c, d in list(task.cycles)]
sys.stdout.write("".join(lines) + "done\n")
sys.stdout.flush()
os._exit(0)
