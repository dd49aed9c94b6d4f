import java.util.concurrent.CompletableFuture;
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
        wakes("LOCK.RELEASE", "", key -> must("LOCK.RELEASE " + key + " alice"));
        wakes("LOCK.FORCERELEASE", "", key -> must("LOCK.FORCERELEASE " + key));
        wakes("LOCK.RELEASE in MULTI", "", key -> {
            must("MULTI");
            must("LOCK.RELEASE " + key + " alice");
            must("EXEC");
        });
        wakes("LOCK.RELEASE in a Lua script", "",
            key -> redis.call("EVAL", "return redis.call('LOCK.RELEASE', KEYS[1], 'alice')", "1", key));
        wakes("the last reader's LOCK.RELEASE … SHARED", " SHARED", key -> {
            must("LOCK.ACQUIRE " + key + " carol 60000 SHARED");
            must("LOCK.RELEASE " + key + " alice SHARED");
            must("LOCK.RELEASE " + key + " carol SHARED");
        });
        shorterLeases();
        sharedLocks();
        documented();
    }

    private interface Release {
        void of(String key) throws Exception;
    }

    private void wakes(String how, String mode, Release release) {
        Table.check("after " + how, "within a second", () -> {
            RLock lock = first.getLock(key());
            long slowest = 0;
            for (int i = 0; i < 5; i++) {
                must("LOCK.ACQUIRE " + lock.getName() + " alice 60000" + mode);
                CompletableFuture<Long> sleeper = sleeper(lock);
                long began = System.nanoTime();
                release.of(lock.getName());
                slowest = Math.max(slowest, woken(sleeper, lock, began));
            }
            return Table.seen(slowest < SOON_MS, slowest + " ms at most in 5");
        });
    }

    /** What a sleeper sees once, as long as a lease of 8 s runs, and has to learn. */
    private void ends(String what, long afterMs, Release begin, Release change) {
        Table.check(what, "after " + afterMs + " ms", () -> {
            RLock lock = first.getLock(key());
            begin.of(lock.getName());
            CompletableFuture<Long> sleeper = sleeper(lock);
            long began = System.nanoTime();
            change.of(lock.getName());
            long ms = woken(sleeper, lock, began);
            return Table.seen(ms < afterMs + SOON_MS, ms + " ms");
        });
    }

    private void shorterLeases() {
        ends("when the lease of a dead holder ends", 1_000,
            key -> must("LOCK.ACQUIRE " + key + " alice 1000"), key -> { });
        // The sleeper is not to have its turn, but to hear of the hand-off.
        must("CONFIG SET kvlock.redisson-turn-ms 0");
        ends("when a lock of 8 s was handed to a waiter with 1 s, who dies", 1_000,
            key -> must("LOCK.ACQUIRE " + key + " alice 8000"), key -> {
                CompletableFuture<Object> granted = inLine(key, "bob", 1_000);
                must("LOCK.RELEASE " + key + " alice");
                Wait.get(granted);
            });
        must("CONFIG SET kvlock.redisson-turn-ms 250");
        ends("when a lease of 8 s was renewed to 1 s, and its holder dies", 1_000,
            key -> must("LOCK.ACQUIRE " + key + " alice 8000"), key -> must("LOCK.RENEW " + key + " alice 1000"));
        ends("the same with a share", 1_000,
            key -> must("LOCK.ACQUIRE " + key + " alice 8000 SHARED"), key -> must("LOCK.RENEW " + key + " alice 1000"));
    }

    private void sharedLocks() {
        ends("when the reader with 8 s releases, and the other with 2 s has died", 2_000, key -> {
            must("LOCK.ACQUIRE " + key + " alice 8000 SHARED");
            must("LOCK.ACQUIRE " + key + " bob 2000 SHARED");
        }, key -> must("LOCK.RELEASE " + key + " alice SHARED"));
        ends("when the reader with 8 s releases, after the other's lease of 1 s has ended", 1_000, key -> {
            must("LOCK.ACQUIRE " + key + " alice 8000 SHARED");
            must("LOCK.ACQUIRE " + key + " bob 1000 SHARED");
        }, key -> {
            Wait.untilAfter(System.nanoTime(), 1_000);
            must("LOCK.RELEASE " + key + " alice SHARED");
        });
        leavesNothing("a reader with 8 s releases, the other with 1 s dies", key -> {
            must("LOCK.ACQUIRE " + key + " alice 8000 SHARED");
            must("LOCK.ACQUIRE " + key + " bob 1000 SHARED");
            must("LOCK.RELEASE " + key + " alice SHARED");
        });
        leavesNothing("the only reader renews 8 s to 1 s and dies",
            key -> {
                must("LOCK.ACQUIRE " + key + " alice 8000 SHARED");
                must("LOCK.RENEW " + key + " alice 1000");
            });
        Table.check("LOCK.FORCERELEASE of what is left of a shared lock whose readers are dead",
            "the key is gone, tryLock() true", () -> {
                RLock lock = first.getLock(key());
                redis.call("HSET", lock.getName(), "lock-mode", "shared", "bob", "1 1000");
                must("PEXPIRE " + lock.getName() + " 60000");
                boolean before = one.call(() -> lock.tryLock());
                Object answer = redis.run("LOCK.FORCERELEASE " + lock.getName());
                boolean after = one.call(() -> lock.tryLock());
                return Table.seen(!before && after, "before " + before + ", answer " + answer + ", after " + after);
            });
    }

    private void leavesNothing(String what, Release begin) {
        Table.check(what + "; 1.5 s later tryLock()", "true: the key is gone", () -> {
            RLock lock = first.getLock(key());
            begin.of(lock.getName());
            Wait.untilAfter(System.nanoTime(), 1_500);
            Object left = redis.run("PTTL " + lock.getName());
            boolean got = one.call(() -> lock.tryLock());
            return Table.seen(got, got + ", PTTL " + left + ", LOCK.INFO " + site.info(lock.getName()).get("state"));
        });
    }

    private void documented() {
        Table.chapter("Who waits longer, as the guide says");
        Table.check("with getFairLock, which listens on a channel of its own", "at the end of the lease that it saw, 4 s",
            () -> slept(first.getFairLock(key())));
        Table.check("with kvlock.redisson-channel no", "at the end of the lease that it saw, 4 s", () -> {
            must("CONFIG SET kvlock.redisson-channel no");
            try {
                return slept(first.getLock(key()));
            } finally {
                must("CONFIG SET kvlock.redisson-channel auto");
            }
        });
        Table.check("SET over a lock while a LOCK.WAIT is in line", "it stays in line until the value has gone", () -> {
            String key = key();
            must("LOCK.ACQUIRE " + key + " alice 60000");
            CompletableFuture<Object> granted = inLine(key, "bob", 1_000);
            must("SET " + key + " v");
            boolean stays = Wait.isPending(granted, 1_000);
            Object info = redis.run("LOCK.INFO " + key);
            must("DEL " + key);
            return Table.seen(stays && isGranted(Wait.get(granted)), "LOCK.INFO " + info + "; granted after DEL");
        });
        Table.check("a tryLock() loop and LOCK.WAIT, 200 times Redisson's unlock()", "LOCK.WAIT comes first, normally",
            this::overtaking);
    }

    private Table.Seen slept(RLock lock) throws Exception {
        must("LOCK.ACQUIRE " + lock.getName() + " alice 4000");
        long began = System.nanoTime();
        CompletableFuture<Long> woken = one.startTimed(lock::lock);
        Wait.untilAfter(began, 1_000);
        must("LOCK.RELEASE " + lock.getName() + " alice");
        long ms = woken(woken, lock, began);
        return Table.seen(ms > 3_500 && ms < 4_000 + SOON_MS, "after " + ms + " ms, released after 1,000");
    }

    private Table.Seen overtaking() throws Exception {
        RLock lock = first.getLock(key());
        RLock thief = second.getLock(lock.getName());
        int overtaken = 0;
        AtomicBoolean over = new AtomicBoolean();
        AtomicInteger stolen = new AtomicInteger();
        CompletableFuture<Long> thieving = two.startTimed(() -> {
            while (!over.get()) {
                if (thief.tryLock()) {
                    stolen.incrementAndGet();
                    thief.unlock();
                }
            }
        });
        for (int i = 0; i < 200; i++) {
            one.run(lock::lock);
            CompletableFuture<Object> granted = inLine(lock.getName(), "bob", 60_000);
            int before = stolen.get();
            one.run(lock::unlock);
            Wait.get(granted);
            overtaken += stolen.get() > before ? 1 : 0;
            must("LOCK.RELEASE " + lock.getName() + " bob");
        }
        over.set(true);
        Wait.get(thieving);
        return Table.reported("overtaken by tryLock() in " + overtaken + " of 200");
    }
}
