import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.api.RLock;

/** Redisson's waiters hear of it when a lock of kvlock's becomes free, or will be sooner than they saw. */
final class Waking extends Group {
    Waking(Site site) {
        super(site);
    }

    void run() {
        Table.chapter("A waiting lock() of Redisson's has the lock soon");
        wakes("LOCK.RELEASE", "", send("LOCK.RELEASE k alice"));
        wakes("LOCK.FORCERELEASE", "", send("LOCK.FORCERELEASE k"));
        wakes("LOCK.RELEASE in MULTI", "", send("MULTI; LOCK.RELEASE k alice; EXEC"));
        wakes("LOCK.RELEASE in a Lua script", "",
            lock -> redis.call("EVAL", "return redis.call('LOCK.RELEASE', KEYS[1], 'alice')", "1", lock.getName()));
        wakes("the last reader's LOCK.RELEASE … SHARED", " SHARED",
            send("LOCK.ACQUIRE k carol 60000 SHARED; LOCK.RELEASE k alice SHARED; LOCK.RELEASE k carol SHARED"));
        shorterLeases();
        sharedLocks();
        documented();
    }

    private void wakes(String how, String mode, Step release) {
        Table.check("after " + how, "within a second", () -> {
            RLock lock = first.getLock(key());
            long slowest = 0;
            for (int i = 0; i < 5; i++) {
                must(lock.getName(), "LOCK.ACQUIRE k alice 60000" + mode);
                slowest = Math.max(slowest, sleptThrough(lock, release));
            }
            return Table.seen(slowest < SOON_MS, slowest + " ms at most in 5");
        });
    }

    /** What a sleeper sees once, as long as a lease of 8 s runs, and has to learn. */
    private void ends(String what, long afterMs, String begin, Step change) {
        Table.check(what, "after " + afterMs + " ms", () -> {
            RLock lock = first.getLock(key());
            must(lock.getName(), begin);
            long ms = sleptThrough(lock, change);
            return Table.seen(ms < afterMs + SOON_MS, ms + " ms");
        });
    }

    private long sleptThrough(RLock lock, Step change) throws Exception {
        return sleep(one, lock, () -> change.of(lock), site).ms();
    }

    private void shorterLeases() {
        ends("when the lease of a dead holder ends", 1_000, "LOCK.ACQUIRE k alice 1000", lock -> { });
        // The sleeper is not to have its turn, but to hear of the hand-off.
        redis.run("CONFIG SET kvlock.redisson-turn-ms 0");
        ends("when a lock of 8 s was handed to a waiter with 1 s, who dies", 1_000, "LOCK.ACQUIRE k alice 8000", lock -> {
            Future<Object> granted = site.inLine(lock.getName(), "bob", 1_000);
            must(lock.getName(), "LOCK.RELEASE k alice");
            Wait.get(granted);
        });
        redis.run("CONFIG SET kvlock.redisson-turn-ms 250");
        ends("when a lease of 8 s was renewed to 1 s, and its holder dies", 1_000,
            "LOCK.ACQUIRE k alice 8000", send("LOCK.RENEW k alice 1000"));
        ends("the same with a share", 1_000, "LOCK.ACQUIRE k alice 8000 SHARED", send("LOCK.RENEW k alice 1000"));
    }

    private void sharedLocks() {
        ends("when the reader with 8 s releases, and the other with 2 s has died", 2_000,
            "LOCK.ACQUIRE k alice 8000 SHARED; LOCK.ACQUIRE k bob 2000 SHARED", send("LOCK.RELEASE k alice SHARED"));
        ends("when the reader with 8 s releases, after the other's lease of 1 s has ended", 1_000,
            "LOCK.ACQUIRE k alice 8000 SHARED; LOCK.ACQUIRE k bob 1000 SHARED", lock -> {
                Thread.sleep(1_000);
                must(lock.getName(), "LOCK.RELEASE k alice SHARED");
            });
        leavesNothing("a reader with 8 s releases, the other with 1 s dies",
            "LOCK.ACQUIRE k alice 8000 SHARED; LOCK.ACQUIRE k bob 1000 SHARED; LOCK.RELEASE k alice SHARED");
        leavesNothing("the only reader renews 8 s to 1 s and dies", "LOCK.ACQUIRE k alice 8000 SHARED; LOCK.RENEW k alice 1000");
        Table.check("LOCK.FORCERELEASE of what is left of a shared lock whose readers are dead",
            "the key is gone, tryLock() true", () -> {
                RLock lock = first.getLock(key());
                redis.call("HSET", lock.getName(), "lock-mode", "shared", "bob", "1 1000");
                must(lock.getName(), "PEXPIRE k 60000");
                boolean before = one.call(() -> lock.tryLock());
                Object answer = redis.run("LOCK.FORCERELEASE " + lock.getName());
                boolean after = one.call(() -> lock.tryLock());
                return Table.seen(!before && after, "before " + before + ", answer " + answer + ", after " + after);
            });
    }

    private void leavesNothing(String what, String begin) {
        Table.check(what + "; 1.5 s later tryLock()", "true: the key is gone", () -> {
            RLock lock = first.getLock(key());
            must(lock.getName(), begin);
            Thread.sleep(1_500);
            Object left = redis.run("PTTL " + lock.getName());
            boolean got = one.call(() -> lock.tryLock());
            return Table.seen(got, got + ", PTTL " + left + ", LOCK.INFO " + site.info(lock.getName(), "state"));
        });
    }

    private void documented() {
        Table.chapter("Who waits longer, as the guide says");
        Table.check("with getFairLock, which listens on a channel of its own", "at the end of the lease that it saw, 4 s",
            () -> slept(first.getFairLock(key())));
        Table.check("with kvlock.redisson-channel no", "at the end of the lease that it saw, 4 s", () -> {
            redis.run("CONFIG SET kvlock.redisson-channel no");
            try {
                return slept(first.getLock(key()));
            } finally {
                redis.run("CONFIG SET kvlock.redisson-channel auto");
            }
        });
        Table.check("SET over a lock while a LOCK.WAIT is in line", "it stays in line until the value has gone", () -> {
            String key = key();
            must(key, "LOCK.ACQUIRE k alice 60000");
            Future<Object> granted = site.inLine(key, "bob", 1_000);
            must(key, "SET k v");
            boolean stays = Wait.isPending(granted, 1_000);
            String info = answer(redis, "LOCK.INFO " + key);
            must(key, "DEL k");
            return Table.seen(stays && Wait.get(granted) != null, "LOCK.INFO " + info + "; granted after DEL");
        });
        Table.check("a tryLock() loop and LOCK.WAIT, 200 times Redisson's unlock()", "LOCK.WAIT comes first, normally",
            this::overtaking);
    }

    private Table.Seen slept(RLock lock) throws Exception {
        must(lock.getName(), "LOCK.ACQUIRE k alice 4000");
        long began = System.nanoTime();
        Future<Long> woken = one.startTimed(lock::lock);
        Thread.sleep(1_000);
        must(lock.getName(), "LOCK.RELEASE k alice");
        long ms = TimeUnit.NANOSECONDS.toMillis(Wait.get(woken) - began);
        one.run(lock::unlock);
        return Table.seen(ms > 3_500 && ms < 4_000 + SOON_MS, "after " + ms + " ms, released after 1,000");
    }

    private Table.Seen overtaking() throws Exception {
        RLock lock = first.getLock(key());
        RLock thief = second.getLock(lock.getName());
        int overtaken = 0;
        AtomicBoolean over = new AtomicBoolean();
        AtomicInteger stolen = new AtomicInteger();
        Future<Long> thieving = two.startTimed(() -> {
            while (!over.get()) {
                if (thief.tryLock()) {
                    stolen.incrementAndGet();
                    thief.unlock();
                }
            }
        });
        for (int i = 0; i < 200; i++) {
            one.run(lock::lock);
            Future<Object> granted = site.inLine(lock.getName(), "bob", 60_000);
            int before = stolen.get();
            one.run(lock::unlock);
            Wait.get(granted);
            overtaken += stolen.get() > before ? 1 : 0;
            must(lock.getName(), "LOCK.RELEASE k bob");
        }
        over.set(true);
        Wait.get(thieving);
        return Table.reported("overtaken by tryLock() in " + overtaken + " of 200");
    }
}
