// Locks of Curator that a process holds until it is killed. Only mode=keep of ../README.md.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

final class Peer {
    private static final Map<String, String> ARGUMENTS = new HashMap<>();
    private static final CountDownLatch START = new CountDownLatch(1);

    private static int number(String name) {
        return Integer.parseInt(ARGUMENTS.get(name));
    }

    public static void main(String[] args) throws Exception {
        for (String argument : args) {
            String[] parts = argument.split("=", 2);
            ARGUMENTS.put(parts[0], parts[1]);
        }
        if (!ARGUMENTS.get("mode").equals("keep")) {
            throw new IllegalArgumentException("only mode=keep");
        }
        // One session for the process, as it is documented.
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            ARGUMENTS.get("url").replace("http://", ""), number("lease_ms"), 5_000,
            new ExponentialBackoffRetry(100, 10));
        client.start();
        client.blockUntilConnected();
        int tasks = number("tasks");
        BlockingQueue<Long> kept = new LinkedBlockingQueue<>();
        for (int i = 0; i < tasks; i++) {
            // The mutex belongs to its thread.
            String path = "/" + ARGUMENTS.get("key") + "-" + i % number("keys");
            Thread thread = new Thread(null, () -> keep(client, path, kept), path, 256 * 1024);
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("ready " + ARGUMENTS.get("version"));
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        START.countDown();
        long first = Long.MAX_VALUE;
        long last = 0;
        for (int i = 0; i < tasks; i++) {
            long moment = kept.take();
            first = Math.min(first, moment);
            last = Math.max(last, moment);
        }
        System.out.println(first + " " + last);
        Thread.currentThread().join();
    }

    private static void keep(CuratorFramework client, String path, BlockingQueue<Long> kept) {
        try {
            START.await();
            new InterProcessMutex(client, path).acquire();
            // CLOCK_MONOTONIC, on Linux.
            kept.add(System.nanoTime());
            Thread.currentThread().join();
        } catch (Exception trouble) {
            trouble.printStackTrace();
        }
    }
}
