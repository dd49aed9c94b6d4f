// Threads that all need a result that another program produces: they look for it, acquire the lock, and look again.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

final class Once {
    private Once() {}

    // Has the same input and output as by-crate/once.rs.
    static void run(Map<String, String> arguments, List<RedissonClient> clients) throws Exception {
        int tasks = Integer.parseInt(arguments.get("tasks"));
        String key = arguments.get("key");
        System.out.println("ready " + arguments.get("version"));
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        AtomicInteger worked = new AtomicInteger();
        CountDownLatch done = new CountDownLatch(tasks);
        for (int i = 0; i < tasks; i++) {
            RedissonClient client = clients.get(i % clients.size());
            Thread thread = new Thread(() -> {
                if (works(client, key)) {
                    worked.incrementAndGet();
                }
                done.countDown();
            });
            thread.setDaemon(true);
            thread.start();
        }
        done.await();
        System.out.println(System.nanoTime() + " " + worked.get());
        System.out.println("done");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    // Returns whether the thread has to produce the result itself.
    private static boolean works(RedissonClient client, String key) {
        RBucket<String> result = client.getBucket(key, StringCodec.INSTANCE);
        if (result.get() != null) {
            return false;
        }
        RLock lock = client.getLock("{" + key + "}:lock");
        lock.lock();
        try {
            return result.get() == null;
        } finally {
            lock.unlock();
        }
    }
}
