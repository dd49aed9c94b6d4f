import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RLock;

/** Many of both kinds at one lock: no two hold it at once; who has it how often is only told. */
final class Fairness extends Group {
    private static final int REDISSON = 20;

    Fairness(Site site) {
        super(site);
    }

    void run() {
        Table.chapter("Many at one lock, 1 ms each, 5 s: shares are reported, overlaps judged");
        contend(20, 0);
        contend(20, 50);
        contend(20, 200);
        contend(1, 0);
    }

    private static final class Count {
        final AtomicBoolean over = new AtomicBoolean();
        final AtomicInteger holders = new AtomicInteger();
        final AtomicInteger overlaps = new AtomicInteger();
        final AtomicLong redisson = new AtomicLong();
        final AtomicLong kvlock = new AtomicLong();
        final AtomicLong longest = new AtomicLong();
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

    private void contend(int kvlock, int thinkMs) {
        String what = String.format("%d threads of Redisson, %d clients of LOCK.WAIT that come again after %d ms",
            REDISSON, kvlock, thinkMs);
        Table.check(what, "no overlap, exact count", () -> {
            Count count = new Count();
            String key = key();
            List<CompletableFuture<Long>> all = new ArrayList<>();
            for (int i = 0; i < REDISSON; i++) {
                RLock lock = (i % 2 == 0 ? first : second).getLock(key);
                all.add(new Caller().startTimed(() -> redisson(lock, count)));
            }
            for (int i = 0; i < kvlock; i++) {
                String owner = "owner" + i;
                all.add(new Caller().startTimed(() -> kvlock(key, owner, thinkMs, count)));
            }
            SECONDS.sleep(5);
            long redissons = count.redisson.get();
            long kvlocks = count.kvlock.get();
            count.over.set(true);
            for (CompletableFuture<Long> each : all) {
                Wait.get(each);
            }
            boolean good = count.overlaps.get() == 0 && count.guarded == count.redisson.get() + count.kvlock.get();
            return Table.seen(good, String.format("Redisson %d, kvlock %d, longest wait of Redisson's %d ms, overlaps %d",
                redissons, kvlocks, count.longest.get(), count.overlaps.get()));
        });
    }

    private static void redisson(RLock lock, Count count) throws InterruptedException {
        while (!count.over.get()) {
            long began = System.nanoTime();
            lock.lock(10, SECONDS);
            count.longest.accumulateAndGet(Wait.since(began), Math::max);
            count.hold();
            count.redisson.incrementAndGet();
            lock.unlock();
        }
    }

    private void kvlock(String key, String owner, int thinkMs, Count count) throws InterruptedException {
        try (Redis own = site.connect()) {
            while (!count.over.get()) {
                if (!isGranted(own.run("LOCK.WAIT " + key + " " + owner + " 10000 0"))) {
                    throw new IllegalStateException("LOCK.WAIT was not granted");
                }
                count.hold();
                count.kvlock.incrementAndGet();
                own.run("LOCK.RELEASE " + key + " " + owner);
                Thread.sleep(thinkMs);
            }
        }
    }
}
