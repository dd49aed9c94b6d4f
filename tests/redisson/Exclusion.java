import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Who holds keeps the other out, and hands over when done. */
final class Exclusion extends Group {
    Exclusion(Site site) {
        super(site);
    }

    void run() {
        Table.chapter("Redisson and kvlock exclude each other");
        kinds().forEach((name, kind) -> Table.check(name + " and LOCK.ACQUIRE, alone and SHARED",
            "nil while Redisson holds; false, and unlock() throws, while kvlock does", () -> both(key(), kind)));
        Table.check("what each says of the other's lock",
            "LOCK.INFO: held by uuid:thread, 1 hold, no token; isLocked(), lease left, not held by this thread", this::told);
        holderEnds();
        holderGoes();
        Table.chapter("The same owner in both worlds");
        reentry();
    }

    private Table.Seen both(String key, Function<String, RLock> kind) throws Exception {
        RLock lock = kind.apply(key);
        one.run(lock::lock);
        Object alone = redis.run("LOCK.ACQUIRE " + key + " bob 5000");
        Object shared = redis.run("LOCK.ACQUIRE " + key + " bob 5000 SHARED");
        one.run(lock::unlock);
        boolean good = alone == null && shared == null;
        for (String mode : List.of("", " SHARED")) {
            must("LOCK.ACQUIRE " + key + " alice 60000" + mode);
            good &= !two.call(() -> lock.tryLock());
            good &= !two.call(() -> lock.tryLock(50, MILLISECONDS));
            good &= two.thrownBy(lock::unlock).equals("IllegalMonitorStateException");
            good &= must("LOCK.RELEASE " + key + " alice" + mode).equals(0L);
        }
        good &= two.call(() -> lock.tryLock());
        two.run(lock::unlock);
        return Table.seen(good && isFree(key), "so");
    }

    private Table.Seen told() throws Exception {
        String key = key();
        RLock lock = first.getLock(key);
        one.run(lock::lock);
        Map<String, Object> info = site.info(key);
        boolean good = info.get("state").equals("held") && info.get("owner").equals(one.owner(first))
            && info.get("holds").equals("1") && info.get("token").equals("null");
        one.run(lock::unlock);
        must("LOCK.ACQUIRE " + key + " alice 60000");
        good &= lock.isLocked() && !lock.isHeldByCurrentThread() && lock.getHoldCount() == 0;
        good &= lock.remainTimeToLive() > 50_000;
        must("LOCK.RELEASE " + key + " alice");
        return Table.seen(good, "so");
    }

    private interface End {
        void of(RLock lock) throws Exception;
    }

    private void handsOver(String how, End end) {
        Table.check("LOCK.WAIT gets the lock on " + how, "within a second", () -> {
            RLock lock = first.getLock(key());
            long slowest = 0;
            for (int i = 0; i < 10; i++) {
                one.run(lock::lock);
                CompletableFuture<Object> granted = inLine(lock.getName(), "bob", 60_000);
                long began = System.nanoTime();
                end.of(lock);
                Wait.get(granted);
                slowest = Math.max(slowest, Wait.since(began));
                must("LOCK.RELEASE " + lock.getName() + " bob");
            }
            return Table.seen(slowest < SOON_MS, slowest + " ms at most in 10");
        });
    }

    private void holderEnds() {
        handsOver("unlock()", lock -> one.run(lock::unlock));
        handsOver("the second unlock() of two holds", lock -> {
            one.run(lock::lock);
            one.run(lock::unlock);
            one.run(lock::unlock);
        });
        handsOver("forceUnlock() by another thread", lock -> two.run(lock::forceUnlock));
        handsOver("getKeys().delete()", lock -> first.getKeys().delete(lock.getName()));
        handsOver("LOCK.FORCERELEASE", lock -> must("LOCK.FORCERELEASE " + lock.getName()));
        Table.check("LOCK.WAIT gets the lock when lock(1 s) ends", "after 1 s", () -> {
            RLock lock = first.getLock(key());
            one.run(() -> lock.lock(1, SECONDS));
            long began = System.nanoTime();
            Wait.get(inLine(lock.getName(), "bob", 5_000));
            long ms = Wait.since(began);
            return Table.seen(ms > 700 && ms < 1_000 + SOON_MS, ms + " ms");
        });
    }

    private void holderGoes() {
        Table.check("Redisson's watchdog (3 s) keeps a LOCK.WAIT waiting for 5 s; its process goes away",
            "not granted; then within 3 s", () -> {
                RedissonClient process = site.redisson();
                RLock lock = process.getLock(key());
                one.run(lock::lock);
                CompletableFuture<Object> granted = inLine(lock.getName(), "bob", 5_000);
                boolean kept = Wait.isPending(granted, 5_000);
                long began = System.nanoTime();
                process.shutdown(0, 1, SECONDS);
                Wait.get(granted);
                long ms = Wait.since(began);
                return Table.seen(kept && ms < 3_000 + SOON_MS, (kept ? "not granted; " : "GRANTED; ") + ms + " ms");
            });
        Table.check("LOCK.FORCERELEASE of a lock with Redisson's watchdog (3 s), taken by LOCK.WAIT for 10 s",
            "the watchdog leaves that lease alone; unlock() throws", () -> {
                RLock lock = first.getLock(key());
                one.run(lock::lock);
                CompletableFuture<Object> granted = inLine(lock.getName(), "bob", 10_000);
                must("LOCK.FORCERELEASE " + lock.getName());
                Wait.get(granted);
                long began = System.nanoTime();
                Wait.untilAfter(began, 3_500);
                long left = Long.parseLong(site.info(lock.getName()).get("lease-left").toString());
                String thrown = one.thrownBy(lock::unlock);
                must("LOCK.RELEASE " + lock.getName() + " bob");
                boolean good = left < 6_600 && left > 5_000 && thrown.equals("IllegalMonitorStateException");
                return Table.seen(good, left + " ms left of 10,000 after 3,500; " + thrown);
            });
    }

    private void reentry() {
        Table.check("lock(), LOCK.ACQUIRE by uuid:thread; unlock(), LOCK.RELEASE",
            "2 holds and a token; 1; free", () -> {
                RLock lock = first.getLock(key());
                String owner = one.owner(first);
                one.run(lock::lock);
                List<?> granted = (List<?>) must("LOCK.ACQUIRE " + lock.getName() + " " + owner + " 30000");
                int holds = one.call(lock::getHoldCount);
                one.run(lock::unlock);
                int left = one.call(lock::getHoldCount);
                Object released = must("LOCK.RELEASE " + lock.getName() + " " + owner);
                boolean good = granted.get(1).equals(2L) && (Long) granted.get(0) > 1L << 40 && holds == 2
                    && left == 1 && released.equals(0L) && isFree(lock.getName());
                return Table.seen(good, granted + ", " + holds + ", " + left + ", " + released);
            });
        Table.check("LOCK.ACQUIRE by uuid:thread, lock(); unlock() twice", "2 holds; free; LOCK.RELEASE nil", () -> {
            RLock lock = first.getLock(key());
            String owner = one.owner(first);
            must("LOCK.ACQUIRE " + lock.getName() + " " + owner + " 30000");
            one.run(lock::lock);
            int holds = one.call(lock::getHoldCount);
            one.run(lock::unlock);
            one.run(lock::unlock);
            boolean free = isFree(lock.getName());
            Object released = redis.run("LOCK.RELEASE " + lock.getName() + " " + owner);
            return Table.seen(holds == 2 && free && released == null, holds + ", free " + free + ", " + released);
        });
        Table.check("LOCK.ACQUIRE for 60 s by uuid:thread, lock(1 s) by that thread", "1 s is left", () -> {
            RLock lock = first.getLock(key());
            String owner = one.owner(first);
            must("LOCK.ACQUIRE " + lock.getName() + " " + owner + " 60000");
            one.run(() -> lock.lock(1, SECONDS));
            Object left = site.info(lock.getName()).get("lease-left");
            return Table.seen(Long.parseLong(left.toString()) <= 1_000, left + " ms");
        });
        Table.check("lock() with a watchdog of 3 s, LOCK.ACQUIRE for 60 s by uuid:thread; then unlock()",
            "Redisson sets kvlock's lease back to 3 s", () -> {
                RLock lock = first.getLock(key());
                String owner = one.owner(first);
                one.run(lock::lock);
                must("LOCK.ACQUIRE " + lock.getName() + " " + owner + " 60000");
                Wait.untilAfter(System.nanoTime(), 1_500);
                Object watched = site.info(lock.getName()).get("lease-left");
                one.run(lock::unlock);
                Object unlocked = site.info(lock.getName()).get("lease-left");
                boolean good = Long.parseLong(watched.toString()) <= 3_000 && Long.parseLong(unlocked.toString()) <= 3_000;
                return Table.seen(good, watched + " ms, after unlock() " + unlocked + " ms");
            });
        Table.check("lock(), LOCK.ACQUIRE … SHARED by uuid:thread; then unlock()", "the share goes with it", () -> {
            RLock lock = first.getLock(key());
            one.run(lock::lock);
            must("LOCK.ACQUIRE " + lock.getName() + " " + one.owner(first) + " 30000 SHARED");
            String thrown = one.thrownBy(lock::unlock);
            return Table.seen(isFree(lock.getName()), "unlock(): " + thrown + "; " + site.info(lock.getName()).get("state"));
        });
    }
}
