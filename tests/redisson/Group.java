import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** What the checks of one chapter have in common: a server, two processes with Redisson, two threads. */
abstract class Group {
    /** Longer than a message takes on a busy machine, and much shorter than the leases that would end. */
    static final long SOON_MS = 1_000;

    private static int keys;

    final Site site;
    final Redis redis;
    final RedissonClient first;
    final RedissonClient second;
    final Caller one = new Caller();
    final Caller two = new Caller();

    Group(Site site) {
        this.site = site;
        redis = site.connect();
        first = site.redisson();
        second = site.redisson();
    }

    static String key() {
        return "key" + ++keys;
    }

    /** Those of the first process that are said to exclude. */
    Map<String, Function<String, RLock>> kinds() {
        Map<String, Function<String, RLock>> kinds = new LinkedHashMap<>();
        kinds.put("getLock", first::getLock);
        kinds.put("getSpinLock", first::getSpinLock);
        kinds.put("getFencedLock", first::getFencedLock);
        kinds.put("getFairLock", first::getFairLock);
        kinds.put("getNonReentrantLock", first::getNonReentrantLock);
        kinds.put("getNonReentrantFairLock", first::getNonReentrantFairLock);
        kinds.put("getMultiLock(locks)", key -> first.getMultiLock(first.getLock(key), first.getLock(key + "b")));
        return kinds;
    }

    /** A command that has to succeed. */
    Object must(String line) {
        return must(redis, line);
    }

    static Object must(Redis redis, String line) {
        Object answer = redis.run(line);
        if (answer == null || answer instanceof Redis.Refused) {
            throw new IllegalStateException(line + " answers " + answer);
        }
        return answer;
    }

    /** A second kvlock client in line, seen to be there. */
    CompletableFuture<Object> inLine(String key, String owner, long leaseMs) throws Exception {
        CompletableFuture<Object> granted = site.connect().later("LOCK.WAIT " + key + " " + owner + " " + leaseMs + " 0");
        site.untilWaiting(key, 1);
        return granted;
    }

    /** A Redisson thread that waits, and has seen how long the lock is taken: when it has the lock. */
    CompletableFuture<Long> sleeper(RLock lock) throws Exception {
        CompletableFuture<Long> woken = one.startTimed(lock::lock);
        site.untilRedissonSleeps(lock.getName());
        return woken;
    }

    /** How long after that moment it has the lock; which is then free again. */
    long woken(CompletableFuture<Long> sleeper, RLock lock, long nanoTime) throws Exception {
        long ms = MILLISECONDS.convert(Wait.get(sleeper) - nanoTime, java.util.concurrent.TimeUnit.NANOSECONDS);
        one.run(lock::unlock);
        return ms;
    }

    boolean isFree(String key) {
        return redis.run("EXISTS " + key).equals(0L);
    }

    static boolean isGranted(Object answer) {
        return answer instanceof List<?>;
    }
}
