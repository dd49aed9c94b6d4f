import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.ArrayList;
import java.util.List;
import java.util.LongSummaryStatistics;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.ToLongFunction;
import org.redisson.api.RLock;

/** Many of both kinds at one lock: no two hold it at once; who has it how often is only told. */
final class Fairness extends Group {
    private static final int REDISSON = 20;
    /** Of each contention, in seconds. */
    private static final int LENGTH = 20;

    Fairness(Site site) {
        super(site);
    }

    void run() {
        Table.chapter("Many at one lock, 1 ms each, 20 s: overlaps and Redisson's turn are judged, the rest is told");
        for (int kvlock : new int[] {2, 20}) {
            contend(1, kvlock, 0);
            contend(1, kvlock, 250);
            contend(2, kvlock, 250);
        }
    }

    /** How often a thread had the lock, and how long it waited at most. */
    private record Share(long grants, long longestMs) {}

    private static final class Contention {
        final long began = System.nanoTime();
        final AtomicInteger holders = new AtomicInteger();
        final AtomicInteger overlaps = new AtomicInteger();
        /** Guarded by the lock alone. */
        volatile long guarded;

        Future<Share> start(Caller.Work lock, Caller.Work unlock) {
            return new Caller().start(() -> {
                for (long grants = 0, longest = 0;; grants++) {
                    long asked = System.nanoTime();
                    lock.run();
                    longest = Math.max(longest, Wait.since(asked));
                    if (Wait.since(began) > LENGTH * 1_000) {
                        unlock.run();
                        return new Share(grants, longest);
                    }
                    hold();
                    unlock.run();
                }
            });
        }

        private void hold() throws InterruptedException {
            overlaps.addAndGet(holders.incrementAndGet() == 1 ? 0 : 1);
            long before = guarded;
            Thread.sleep(1);
            guarded = before + 1;
            holders.decrementAndGet();
        }
    }

    /** A message wakes a thread of each client of Redisson: of several, only one finds the lock free. */
    private void contend(int clients, int kvlock, int turnMs) {
        String what = String.format("%d threads of Redisson in %d clients, %d clients of LOCK.WAIT that come again at once, turn %d ms",
            REDISSON, clients, kvlock, turnMs);
        Table.check(what, "no overlap, exact count; half a grant of Redisson a turn at least", () -> {
            redis.run("CONFIG SET kvlock.redisson-turn-ms " + turnMs);
            Contention at = new Contention();
            String key = key();
            List<Future<Share>> redissons = new ArrayList<>();
            List<Future<Share>> kvlocks = new ArrayList<>();
            for (int i = 0; i < REDISSON; i++) {
                RLock lock = (i % clients == 0 ? first : second).getLock(key);
                redissons.add(at.start(() -> lock.lock(10, SECONDS), lock::unlock));
            }
            for (int i = 0; i < kvlock; i++) {
                Redis own = site.connect();
                String owner = "owner" + i;
                kvlocks.add(at.start(() -> must(own, key, "LOCK.WAIT k " + owner + " 10000 0"),
                    () -> own.run("LOCK.RELEASE " + key + " " + owner)));
            }
            LongSummaryStatistics ours = of(kvlocks, Share::grants);
            LongSummaryStatistics theirs = of(redissons, Share::grants);
            boolean good = at.overlaps.get() == 0 && at.guarded == theirs.getSum() + ours.getSum();
            boolean fair = turnMs == 0 || theirs.getSum() * turnMs * 2 >= LENGTH * 1_000L;
            return Table.seen(good && fair, String.format(
                "Redisson %d, least of a thread %d, longest wait %d ms; kvlock %d a second, longest wait %d ms; overlaps %d",
                theirs.getSum(), theirs.getMin(), of(redissons, Share::longestMs).getMax(), ours.getSum() / LENGTH,
                of(kvlocks, Share::longestMs).getMax(), at.overlaps.get()));
        });
    }

    private static LongSummaryStatistics of(List<Future<Share>> threads, ToLongFunction<Share> what) throws Exception {
        LongSummaryStatistics all = new LongSummaryStatistics();
        for (Future<Share> thread : threads) {
            all.accept(what.applyAsLong(Wait.get(thread)));
        }
        return all;
    }
}
