import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.stream.IntStream;
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

    private static final class Count {
        final AtomicBoolean over = new AtomicBoolean();
        final AtomicInteger holders = new AtomicInteger();
        final AtomicInteger overlaps = new AtomicInteger();
        final AtomicLong redisson = new AtomicLong();
        final AtomicLong kvlock = new AtomicLong();
        final AtomicLong longest = new AtomicLong();
        final AtomicLong longestOfKvlock = new AtomicLong();
        /** By each thread of Redisson. */
        final AtomicLongArray grants = new AtomicLongArray(REDISSON);
        /** Guarded by the lock alone. */
        volatile long guarded;

        void hold() throws InterruptedException {
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
            try (Redis operator = site.connect()) {
                operator.run("CONFIG SET kvlock.redisson-turn-ms " + turnMs);
            }
            Count count = new Count();
            String key = key();
            List<CompletableFuture<Long>> all = new ArrayList<>();
            for (int i = 0; i < REDISSON; i++) {
                RLock lock = (i % clients == 0 ? first : second).getLock(key);
                int number = i;
                all.add(new Caller().startTimed(() -> redisson(lock, number, count)));
            }
            for (int i = 0; i < kvlock; i++) {
                String owner = "owner" + i;
                all.add(new Caller().startTimed(() -> kvlock(key, owner, count)));
            }
            SECONDS.sleep(LENGTH);
            long redissons = count.redisson.get();
            long kvlocks = count.kvlock.get();
            long least = IntStream.range(0, REDISSON).mapToLong(count.grants::get).min().orElse(0);
            count.over.set(true);
            for (CompletableFuture<Long> each : all) {
                Wait.get(each);
            }
            boolean good = count.overlaps.get() == 0 && count.guarded == count.redisson.get() + count.kvlock.get();
            boolean fair = turnMs == 0 || redissons * turnMs * 2 >= LENGTH * 1000L;
            return Table.seen(good && fair, String.format(
                "Redisson %d, least of a thread %d, longest wait %d ms; kvlock %d a second, longest wait %d ms; overlaps %d",
                redissons, least, count.longest.get(), kvlocks / LENGTH, count.longestOfKvlock.get(), count.overlaps.get()));
        });
    }

    private static void redisson(RLock lock, int number, Count count) throws InterruptedException {
        while (!count.over.get()) {
            long began = System.nanoTime();
            lock.lock(10, SECONDS);
            count.longest.accumulateAndGet(Wait.since(began), Math::max);
            count.hold();
            count.redisson.incrementAndGet();
            count.grants.incrementAndGet(number);
            lock.unlock();
        }
    }

    private void kvlock(String key, String owner, Count count) throws InterruptedException {
        try (Redis own = site.connect()) {
            while (!count.over.get()) {
                long began = System.nanoTime();
                if (!isGranted(own.run("LOCK.WAIT " + key + " " + owner + " 10000 0"))) {
                    throw new IllegalStateException("LOCK.WAIT was not granted");
                }
                count.longestOfKvlock.accumulateAndGet(Wait.since(began), Math::max);
                count.hold();
                count.kvlock.incrementAndGet();
                own.run("LOCK.RELEASE " + key + " " + owner);
            }
        }
    }
}
