import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.List;
import java.util.concurrent.Future;
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
        exclude("getLock", first::getLock);
        exclude("getSpinLock", first::getSpinLock);
        exclude("getFencedLock", first::getFencedLock);
        exclude("getFairLock", first::getFairLock);
        exclude("getNonReentrantLock", first::getNonReentrantLock);
        exclude("getNonReentrantFairLock", first::getNonReentrantFairLock);
        exclude("getMultiLock(locks)", key -> first.getMultiLock(first.getLock(key), first.getLock(key + "b")));
        Table.check("what each says of the other's lock",
            "LOCK.INFO: held by uuid:thread, 1 hold, no token; isLocked(), lease left, not held by this thread", this::told);
        holderEnds();
        holderGoes();
        Table.chapter("The same owner in both worlds");
        reentry();
    }

    private void exclude(String name, Function<String, RLock> kind) {
        Table.check(name + " and LOCK.ACQUIRE, alone and SHARED",
            "nil while Redisson holds; false, and unlock() throws, while kvlock does", () -> both(key(), kind));
    }

    private Table.Seen both(String key, Function<String, RLock> kind) throws Exception {
        RLock lock = kind.apply(key);
        boolean good = true;
        for (String mode : List.of("", " SHARED")) {
            one.run(lock::lock);
            good &= redis.run("LOCK.ACQUIRE " + key + " bob 5000" + mode) == null;
            one.run(lock::unlock);
            must(key, "LOCK.ACQUIRE k alice 60000" + mode);
            good &= !two.call(() -> lock.tryLock());
            good &= !two.call(() -> lock.tryLock(50, MILLISECONDS));
            good &= two.thrownBy(lock::unlock).equals("IllegalMonitorStateException");
            good &= must(key, "LOCK.RELEASE k alice" + mode).equals(0L);
        }
        good &= two.call(() -> lock.tryLock());
        two.run(lock::unlock);
        return Table.seen(good && isFree(key), "so");
    }

    private Table.Seen told() throws Exception {
        RLock lock = first.getLock(key());
        String key = lock.getName();
        one.run(lock::lock);
        boolean good = site.info(key, "state").equals("held") && site.info(key, "owner").equals(one.owner(first))
            && site.info(key, "holds").equals("1") && site.info(key, "token").equals("null");
        one.run(lock::unlock);
        must(key, "LOCK.ACQUIRE k alice 60000");
        good &= lock.isLocked() && !lock.isHeldByCurrentThread() && lock.getHoldCount() == 0;
        good &= lock.remainTimeToLive() > 50_000;
        must(key, "LOCK.RELEASE k alice");
        return Table.seen(good, "so");
    }

    private void handsOver(String how, Step end) {
        Table.check("LOCK.WAIT gets the lock on " + how, "within a second", () -> {
            RLock lock = first.getLock(key());
            long slowest = 0;
            for (int i = 0; i < 10; i++) {
                one.run(lock::lock);
                Future<Object> granted = site.inLine(lock.getName(), "bob", 60_000);
                long began = System.nanoTime();
                end.of(lock);
                Wait.get(granted);
                slowest = Math.max(slowest, Wait.since(began));
                must(lock.getName(), "LOCK.RELEASE k bob");
            }
            return Table.seen(slowest < SOON_MS, slowest + " ms at most in 10");
        });
    }

    private void holderEnds() {
        handsOver("unlock()", lock -> one.run(lock::unlock));
        handsOver("the second unlock() of two holds", lock -> one.run(lock::lock, lock::unlock, lock::unlock));
        handsOver("forceUnlock() by another thread", lock -> two.run(lock::forceUnlock));
        handsOver("getKeys().delete()", lock -> first.getKeys().delete(lock.getName()));
        handsOver("LOCK.FORCERELEASE", send("LOCK.FORCERELEASE k"));
        Table.check("LOCK.WAIT gets the lock when lock(1 s) ends", "after 1 s", () -> {
            RLock lock = first.getLock(key());
            one.run(() -> lock.lock(1, SECONDS));
            long began = System.nanoTime();
            Wait.get(site.inLine(lock.getName(), "bob", 5_000));
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
                Future<Object> granted = site.inLine(lock.getName(), "bob", 5_000);
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
                Future<Object> granted = site.inLine(lock.getName(), "bob", 10_000);
                must(lock.getName(), "LOCK.FORCERELEASE k");
                Wait.get(granted);
                Thread.sleep(3_500);
                long left = site.leaseLeft(lock.getName());
                String thrown = one.thrownBy(lock::unlock);
                must(lock.getName(), "LOCK.RELEASE k bob");
                boolean good = left < 6_600 && left > 5_000 && thrown.equals("IllegalMonitorStateException");
                return Table.seen(good, left + " ms left of 10,000 after 3,500; " + thrown);
            });
    }

    /** On a lock of its own, with the name of the first thread in the first process as the owner. */
    private interface SameOwner {
        Table.Seen of(RLock lock, String owner) throws Exception;
    }

    private void same(String what, String expected, SameOwner check) {
        Table.check(what, expected, () -> check.of(first.getLock(key()), one.owner(first)));
    }

    private void reentry() {
        same("lock(), LOCK.ACQUIRE by uuid:thread; unlock(), LOCK.RELEASE", "2 holds and a token; 1; free", (lock, owner) -> {
            one.run(lock::lock);
            List<?> granted = (List<?>) must(lock.getName(), "LOCK.ACQUIRE k " + owner + " 30000");
            int holds = one.call(lock::getHoldCount);
            one.run(lock::unlock);
            int left = one.call(lock::getHoldCount);
            Object released = must(lock.getName(), "LOCK.RELEASE k " + owner);
            boolean good = granted.get(1).equals(2L) && (Long) granted.get(0) > 1L << 40 && holds == 2
                && left == 1 && released.equals(0L) && isFree(lock.getName());
            return Table.seen(good, granted + ", " + holds + ", " + left + ", " + released);
        });
        same("LOCK.ACQUIRE by uuid:thread, lock(); unlock() twice", "2 holds; free; LOCK.RELEASE nil", (lock, owner) -> {
            must(lock.getName(), "LOCK.ACQUIRE k " + owner + " 30000");
            one.run(lock::lock);
            int holds = one.call(lock::getHoldCount);
            one.run(lock::unlock, lock::unlock);
            boolean free = isFree(lock.getName());
            Object released = redis.run("LOCK.RELEASE " + lock.getName() + " " + owner);
            return Table.seen(holds == 2 && free && released == null, holds + ", free " + free + ", " + released);
        });
        same("LOCK.ACQUIRE for 60 s by uuid:thread, lock(1 s) by that thread", "1 s is left", (lock, owner) -> {
            must(lock.getName(), "LOCK.ACQUIRE k " + owner + " 60000");
            one.run(() -> lock.lock(1, SECONDS));
            long left = site.leaseLeft(lock.getName());
            return Table.seen(left <= 1_000, left + " ms");
        });
        same("lock() with a watchdog of 3 s, LOCK.ACQUIRE for 60 s by uuid:thread; then unlock()",
            "Redisson sets kvlock's lease back to 3 s", (lock, owner) -> {
                one.run(lock::lock);
                must(lock.getName(), "LOCK.ACQUIRE k " + owner + " 60000");
                Thread.sleep(1_500);
                long watched = site.leaseLeft(lock.getName());
                one.run(lock::unlock);
                long unlocked = site.leaseLeft(lock.getName());
                return Table.seen(watched <= 3_000 && unlocked <= 3_000, watched + " ms, after unlock() " + unlocked + " ms");
            });
        same("lock(), LOCK.ACQUIRE … SHARED by uuid:thread; then unlock()", "the share goes with it", (lock, owner) -> {
            one.run(lock::lock);
            must(lock.getName(), "LOCK.ACQUIRE k " + owner + " 30000 SHARED");
            String thrown = one.thrownBy(lock::unlock);
            return Table.seen(isFree(lock.getName()), "unlock(): " + thrown + "; " + site.info(lock.getName(), "state"));
        });
    }
}
