import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Waiting for what is to happen, and how long that took. */
final class Wait {
    private static final long PATIENCE_MS = 30_000;

    private Wait() {}

    static void until(String what, Callable<Boolean> look) throws Exception {
        for (long began = System.nanoTime(); !look.call(); Thread.sleep(5)) {
            if (since(began) > PATIENCE_MS) {
                throw new TimeoutException("waited in vain until " + what);
            }
        }
    }

    /** Milliseconds. */
    static long since(long nanoTime) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - nanoTime);
    }

    static <T> T get(Future<T> future) throws Exception {
        return future.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    /** Whether it is still to come after that time. */
    static boolean isPending(Future<?> future, long ms) throws Exception {
        try {
            future.get(ms, TimeUnit.MILLISECONDS);
            return false;
        } catch (TimeoutException e) {
            return true;
        }
    }
}
