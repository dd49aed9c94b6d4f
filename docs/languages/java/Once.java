import java.net.URI;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;

/** A result that one process computes for all: LOCK.WAIT … UNLESS, then LOCK.RELEASE … STORE. */
class Once {
    static final URI URL = URI.create(System.getenv().getOrDefault("KVLOCK_URL", "redis://127.0.0.1:6379/"));
    static final int LEASE_MS = 30_000; // longer than the work takes; else renew it, as Lock.java does
    static final int TTL_MS = 60_000; // how long the result is kept

    /** Returns the value of the key. One caller computes it, the others wait for it. */
    static String once(String key, Callable<String> work) throws Exception {
        String lock = "{" + key + "}:lock", owner = UUID.randomUUID().toString();
        // The reply may take as long as another process works.
        var config = DefaultJedisClientConfig.builder(URL).socketTimeoutMillis(0).build();
        var builder = RedisClient.builder().hostAndPort(URL.getHost(), URL.getPort()).clientConfig(config);
        try (RedisClient connection = builder.build()) {
            for (;;) {
                String found = connection.get(key);
                if (found != null) return found;
                Object grant = send(connection, "LOCK.WAIT", lock, owner, LEASE_MS, 0, "HOLDS", 1, "UNLESS", key);
                if (grant instanceof byte[]) continue; // "ready": read it; if it has expired since, wait again
                String value;
                try {
                    value = work.call();
                } catch (Exception e) {
                    send(connection, "LOCK.RELEASE", lock, owner, "ALL"); // the next waiter works
                    throw e;
                }
                // Stores nothing if the lease is over.
                send(connection, "LOCK.RELEASE", lock, owner, "STORE", key, value, "PX", TTL_MS);
                return value;
            }
        }
    }

    static Object send(RedisClient connection, String command, Object... arguments) {
        var request = new CommandArguments(() -> command.getBytes());
        for (Object argument : arguments) request.add(argument.toString());
        return connection.executeCommand(request);
    }

    public static void main(String[] args) throws Exception {
        var works = new AtomicInteger();
        Callable<String> work = () -> {
            works.incrementAndGet();
            Thread.sleep(300);
            return "12,345 orders";
        };
        String key = "report:" + UUID.randomUUID();
        ExecutorService threads = Executors.newFixedThreadPool(10);
        Callable<String> wants = () -> once(key, work);
        List<Future<String>> results = threads.invokeAll(Collections.nCopies(10, wants));
        threads.shutdown();
        for (var result : results) {
            if (!result.get().equals("12,345 orders")) throw new AssertionError(result.get());
        }
        System.out.printf("worked: %d time, for %d who have the result%n", works.get(), results.size());
    }
}
