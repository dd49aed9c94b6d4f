import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisException;

/** Locks of kvlock from Java: acquire, wait, renew, release, and a token for every write. */
class Lock {
    static final URI URL = URI.create(System.getenv().getOrDefault("KVLOCK_URL", "redis://127.0.0.1:6379/"));
    static final int LEASE_MS = 1_000; // the lock stays taken this long if its holder dies; 10,000 to 30,000 is usual
    static final int OFFER_MS = 500; // lease of a grant until the client renews it, because the client may have died; 2,000 is usual
    static final RedisClient REDIS = connect(LEASE_MS / 3);

    final String key;
    final String owner = UUID.randomUUID() + ":1";
    volatile long token;
    private volatile long validUntil;
    private CountDownLatch stop;
    private Thread watchdog;

    Lock(String key) {
        this.key = key;
    }

    /** Takes the lock if it is free. */
    boolean acquire() {
        return take(REDIS, "LOCK.ACQUIRE", key, owner, OFFER_MS, "HOLDS", 1);
    }

    /** Takes the lock, or waits for it. Uses a separate connection, because the reply may take that long. */
    boolean await(int timeoutMs) {
        try (RedisClient waiting = connect(timeoutMs + 5_000)) {
            return take(waiting, "LOCK.WAIT", key, owner, OFFER_MS, timeoutMs, "HOLDS", 1);
        }
    }

    private boolean take(RedisClient connection, String command, Object... arguments) {
        Object grant;
        try {
            grant = send(connection, command, arguments);
            if (grant == null || !renew()) return false; // the full lease starts here
        } catch (JedisException e) { // the outcome is unknown: make sure that we do not hold it
            send(REDIS, "LOCK.CANCEL", key, owner);
            send(REDIS, "LOCK.RELEASE", key, owner, "ALL");
            throw e;
        }
        token = (Long) ((List<?>) grant).get(0);
        stop = new CountDownLatch(1);
        watchdog = new Thread(this::watch);
        watchdog.setDaemon(true);
        watchdog.start();
        return true;
    }

    /** Renews the lease. False: the lock is lost. */
    boolean renew() {
        long sent = nowMs(); // the lease counts from before the command was sent
        boolean held = send(REDIS, "LOCK.RENEW", key, owner, LEASE_MS) != null;
        validUntil = held ? sent + LEASE_MS * 99L / 100 : 0;
        return held;
    }

    /** True if the lock is certainly held. Check before each step of the work. */
    boolean held() {
        return nowMs() < validUntil;
    }

    private void watch() {
        try {
            while (held() && !stop.await(LEASE_MS / 3, TimeUnit.MILLISECONDS)) {
                try {
                    renew();
                } catch (JedisException e) {
                    // Tries again while the lease lasts.
                }
            }
        } catch (InterruptedException e) {
            // The lease ends by itself.
        }
    }

    /** Releases the lock, which then goes to the first waiter. False: it was lost before. */
    boolean release() throws InterruptedException {
        stop.countDown();
        watchdog.join(); // no renewal comes after the release
        validUntil = 0;
        return send(REDIS, "LOCK.RELEASE", key, owner) != null;
    }

    private static Object send(RedisClient connection, String command, Object... arguments) {
        return connection.executeCommand(new CommandArguments(command::getBytes).addObjects(arguments));
    }

    /** A client that waits at most that long for a reply. */
    private static RedisClient connect(int timeoutMs) {
        var config = DefaultJedisClientConfig.builder(URL).timeoutMillis(timeoutMs).build();
        return RedisClient.builder().hostAndPort(URL.getHost(), URL.getPort()).clientConfig(config).build();
    }

    /** A clock that also runs while the machine is suspended (Linux); System.nanoTime stops. */
    private static long nowMs() {
        try {
            return (long) (Double.parseDouble(Files.readString(Path.of("/proc/uptime")).split(" ")[0]) * 1_000);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The resource that the lock guards. It remembers the newest token and refuses older ones. */
    static class Store {
        private long token;
        private String owner = "";

        synchronized void write(Lock lock, String text) {
            boolean late = lock.token < token || (lock.token == token && !lock.owner.equals(owner));
            System.out.println((late ? "refused: " : "written: ") + text);
            if (late) return;
            token = lock.token;
            owner = lock.owner;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Store store = new Store();
        Lock alice = new Lock("orders:42");
        Lock bob = new Lock("orders:42");
        expect(alice.acquire());
        expect(!bob.acquire());

        CompletableFuture<Void> bobWorks = CompletableFuture.runAsync(() -> {
            try {
                expect(bob.await(10_000));
                store.write(bob, "by bob, who waited");
                expect(bob.release());
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });

        Thread.sleep(LEASE_MS * 3 / 2); // longer than the lease: it is renewed
        expect(alice.held());
        store.write(alice, "by alice, who holds the lock");
        expect(alice.release());
        bobWorks.get();
        store.write(alice, "by alice, who comes too late");
    }

    private static void expect(boolean asExpected) {
        if (!asExpected) throw new AssertionError();
    }
}
