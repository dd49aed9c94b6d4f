// Load through Redisson. ../README.md describes the arguments and the output.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

final class Peer {
    private static final Map<String, String> ARGUMENTS = new HashMap<>();
    private static final CountDownLatch START = new CountDownLatch(1);
    private static final AtomicInteger NEWEST_OWNER = new AtomicInteger(-1);
    // An owner that abandoned a lock is not used again, so each acquisition has a new thread id.
    private static final AtomicLong THREAD_IDS = new AtomicLong(1_000_000);
    private static volatile long startsAt;
    private static volatile long endsAt;

    private static int number(String name) {
        return Integer.parseInt(ARGUMENTS.get(name));
    }

    public static void main(String[] args) throws Exception {
        for (String argument : args) {
            String[] parts = argument.split("=", 2);
            ARGUMENTS.put(parts[0], parts[1]);
        }
        List<RedissonClient> clients = new ArrayList<>();
        for (int i = 0; i < number("clients"); i++) {
            clients.add(connect());
        }
        if ("once".equals(ARGUMENTS.get("mode"))) {
            Once.run(ARGUMENTS, clients);
        }
        List<Task> tasks = new ArrayList<>();
        CountDownLatch warm = new CountDownLatch(number("tasks"));
        for (int i = 0; i < number("tasks"); i++) {
            // Neighbouring philosophers are different processes, too.
            int client = "set".equals(ARGUMENTS.get("mode")) ? i : i / number("keys");
            Task task = new Task(i, clients.get(client % clients.size()), warm);
            tasks.add(task);
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            thread.start();
        }
        warm.await();
        System.out.println("ready " + ARGUMENTS.get("version"));
        String[] go = new BufferedReader(new InputStreamReader(System.in)).readLine().split(" ");
        startsAt = Long.parseLong(go[1]);
        endsAt = Long.parseLong(go[2]);
        START.countDown();
        sleepUntil(endsAt);
        print(tasks);
        Runtime.getRuntime().halt(0);
    }

    // As its documentation shows. Many clients with one task each represent many processes. Each has few
    // connections and threads, as a process with one waiter would use.
    private static RedissonClient connect() {
        Config config = new Config();
        var server = config.useSingleServer().setAddress(ARGUMENTS.get("url").replaceAll("/$", ""));
        if (number("clients") > 1 && number("clients") == number("tasks")) {
            config.setThreads(1).setNettyThreads(1);
            server.setConnectionMinimumIdleSize(1).setConnectionPoolSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(1);
        }
        return Redisson.create(config);
    }

    private static void print(List<Task> tasks) {
        StringBuilder text = new StringBuilder();
        for (Task task : tasks) {
            synchronized (task.cycles) {
                for (long[] c : task.cycles) {
                    text.append(task.number).append(' ').append(c[0]).append(' ').append(c[1]).append(' ')
                        .append(c[2]).append(' ').append(c[3]).append('\n');
                }
            }
        }
        System.out.print(text.append("done\n"));
        System.out.flush();
    }

    private static void sleepUntil(long moment) {
        for (long left = moment - System.nanoTime(); left > 0; left = moment - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    private static final class Task implements Runnable {
        // Times of a cycle: request, grant, release, and the reply to the release; 0 for events that have not happened.
        final List<long[]> cycles = new ArrayList<>();
        final int number;
        private final RedissonClient client;
        private final CountDownLatch warm;
        private long[] current;

        Task(int number, RedissonClient client, CountDownLatch warm) {
            this.number = number;
            this.client = client;
            this.warm = warm;
        }

        @Override
        public void run() {
            try {
                live();
            } catch (Exception e) {
                e.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }

        private void live() throws Exception {
            RLock own = lock(ARGUMENTS.get("key") + ":warm:" + ARGUMENTS.get("process") + ":" + number);
            long enough = System.nanoTime() + number("warm_ms") * 1_000_000L;
            do {
                own.lock();
                own.unlock();
            } while (System.nanoTime() < enough);
            warm.countDown();
            START.await();
            sleepUntil(startsAt);

            RLock lock = "set".equals(ARGUMENTS.get("mode"))
                ? set() : lock(ARGUMENTS.get("key") + ":" + number % number("keys"));
            long holdNs = number("hold_us") * 1_000L;
            long thinkNs = number("think_us") * 1_000L;
            boolean abandons = "no".equals(ARGUMENTS.get("release"));
            boolean yields = "yes".equals(ARGUMENTS.get("yields"));
            while (System.nanoTime() < endsAt) {
                begin();
                if (abandons) {
                    lock.lockAsync(number("lease_ms"), TimeUnit.MILLISECONDS, THREAD_IDS.incrementAndGet())
                        .toCompletableFuture().get();
                } else {
                    lock.lock();
                }
                note(1);
                NEWEST_OWNER.set(number);
                if (holdNs > 0) {
                    sleepUntil(System.nanoTime() + holdNs);
                }
                note(2);
                if (!abandons) {
                    lock.unlock();
                }
                note(3);
                while (yields && NEWEST_OWNER.get() == number) {
                    LockSupport.parkNanos(100_000);
                }
                if (thinkNs > 0) {
                    sleepUntil(System.nanoTime() + thinkNs);
                }
            }
        }

        // The lock of the task, the next one in the circle, and the one halfway round.
        private RLock set() {
            int keys = number("keys");
            int[] steps = {0, 1, keys / 2};
            RLock[] locks = new RLock[number("width")];
            for (int i = 0; i < locks.length; i++) {
                locks[i] = lock(ARGUMENTS.get("key") + ":" + (number + steps[i]) % keys);
            }
            return client.getMultiLock(locks);
        }

        private RLock lock(String name) {
            boolean shares = "share".equals(ARGUMENTS.get("mode"));
            return shares ? client.getReadWriteLock(name).readLock() : client.getLock(name);
        }

        private void begin() {
            current = new long[] {System.nanoTime(), 0, 0, 0};
            synchronized (cycles) {
                cycles.add(current);
            }
        }

        private void note(int what) {
            synchronized (cycles) {
                current[what] = System.nanoTime();
            }
        }
    }
}
