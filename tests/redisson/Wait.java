import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Waiting for what is to happen, and how long that took. */
final class Wait {
    private static final long PATIENCE_MS = 30_000;

    private Wait() {}

    /** The first answer that is not null. */
    static <T> T until(String what, Callable<T> look) throws Exception {
        long began = System.nanoTime();
        while (true) {
            T seen = look.call();
            if (seen != null) {
                return seen;
            }
            if (since(began) > PATIENCE_MS) {
                throw new TimeoutException("waited in vain until " + what);
            }
            Thread.sleep(5);
        }
    }

    /** Milliseconds. */
    static long since(long nanoTime) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - nanoTime);
    }

    /** Sleeps until so many milliseconds after that moment: for leases that are to end. */
    static void untilAfter(long nanoTime, long ms) throws InterruptedException {
        Thread.sleep(Math.max(0, ms - since(nanoTime)));
    }

    static <T> T get(CompletableFuture<T> future) throws Exception {
        return future.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    /** Whether it is still to come after that time. */
    static boolean isPending(CompletableFuture<?> future, long ms) throws Exception {
        try {
            future.get(ms, TimeUnit.MILLISECONDS);
            return false;
        } catch (TimeoutException e) {
            return true;
        }
    }
}
