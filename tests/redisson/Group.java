import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;

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

    /** Something that is done about a lock. */
    interface Step {
        void of(RLock lock) throws Exception;
    }

    /** Commands, in which `k` is the name of that lock, that have to succeed. */
    Step send(String commands) {
        return lock -> must(lock.getName(), commands);
    }

    /** The same at once; the answer to the last. */
    Object must(String key, String commands) {
        return must(redis, key, commands);
    }

    static Object must(Redis redis, String key, String commands) {
        Object answer = null;
        for (String line : commands.split("; ")) {
            answer = redis.run(line.replaceAll("\\bk\\b", key));
            if (answer == null) {
                throw new IllegalStateException(line + " answers nil");
            }
        }
        return answer;
    }

    /** What a command answers, or the first word of its error. */
    static String answer(Redis redis, String line) {
        try {
            return String.valueOf(redis.run(line));
        } catch (RedisException e) {
            return e.getMessage().split(" ")[0];
        }
    }

    /** How long after a change a thread of Redisson's had the lock that it waited for, and whether the lock's channel is sharded. */
    record Slept(long ms, boolean sharded) {}

    /** A thread waits for a lock, which is at one of these servers, sees how long it is taken, and then that is changed. */
    static Slept sleep(Caller thread, RLock lock, Caller.Work change, Site... sites) throws Exception {
        Future<Long> woken = thread.startTimed(lock::lock);
        boolean sharded = Site.untilRedissonSleeps(lock.getName(), sites);
        long began = System.nanoTime();
        change.run();
        long ms = TimeUnit.NANOSECONDS.toMillis(Wait.get(woken) - began);
        thread.run(lock::unlock);
        return new Slept(ms, sharded);
    }

    boolean isFree(String key) {
        return redis.run("EXISTS " + key).equals(0L);
    }
}
