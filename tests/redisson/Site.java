import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** A private server with the module, and who is connected to it. Ends with this program. */
final class Site implements AutoCloseable {
    private static final List<Process> STARTED = new ArrayList<>();
    private static String program;
    private static String module;
    private static Path folder;

    final int port;
    private final Process process;
    private final List<RedissonClient> clients = new ArrayList<>();
    /** Somebody who looks on. */
    final Redis control;

    static void use(String program, String module, Path folder) {
        Site.program = program;
        Site.module = module;
        Site.folder = folder;
        Runtime.getRuntime().addShutdownHook(new Thread(() -> STARTED.forEach(Process::destroyForcibly)));
    }

    /** Further arguments of the server. */
    Site(String... arguments) throws Exception {
        this(freePort(), arguments);
    }

    Site(int port, String... arguments) throws Exception {
        this.port = port;
        Path place = Files.createDirectories(folder.resolve(String.valueOf(port)));
        List<String> line = new ArrayList<>(List.of(program, "--port", String.valueOf(port), "--bind", "127.0.0.1",
            "--dir", place.toString(), "--logfile", "server.log", "--save", "", "--loadmodule", module));
        line.addAll(List.of(arguments));
        File nowhere = new File("/dev/null");
        process = new ProcessBuilder(line).redirectOutput(nowhere).redirectError(nowhere).start();
        STARTED.add(process);
        control = Wait.until("the server answers", () -> {
            if (!process.isAlive()) {
                throw new IllegalStateException("the server has ended: see " + place.resolve("server.log"));
            }
            try {
                Redis redis = new Redis(port);
                return "PONG".equals(redis.run("PING")) ? redis : null;
            } catch (RuntimeException e) {
                return null;
            }
        });
    }

    static int freePort() throws IOException {
        while (true) {
            try (ServerSocket socket = new ServerSocket(0)) {
                // The port of a cluster's bus is 10,000 above.
                if (socket.getLocalPort() < 55_000) {
                    return socket.getLocalPort();
                }
            }
        }
    }

    Redis connect() {
        return new Redis(port);
    }

    /** A client of Redisson's as a process would have it, with a short watchdog. */
    RedissonClient redisson() {
        Config config = config();
        config.useSingleServer().setAddress(url(port)).setConnectionMinimumIdleSize(2);
        return redisson(config);
    }

    RedissonClient redisson(Config config) {
        RedissonClient client = Redisson.create(config);
        clients.add(client);
        return client;
    }

    static Config config() {
        return new Config().setLockWatchdogTimeout(3_000).setThreads(4).setNettyThreads(4);
    }

    static String url(int port) {
        return "redis://127.0.0.1:" + port;
    }

    /** What LOCK.INFO says, by its field names. */
    Map<String, Object> info(String key) {
        Object reply = control.run("LOCK.INFO " + key);
        if (!(reply instanceof List<?> items)) {
            return Map.of("state", reply);
        }
        Map<String, Object> info = new TreeMap<>();
        for (int i = 0; i + 1 < items.size(); i += 2) {
            info.put(items.get(i).toString(), String.valueOf(items.get(i + 1)));
        }
        return info;
    }

    void untilWaiting(String key, int waiters) throws Exception {
        Wait.until(waiters + " wait for " + key, () -> info(key).get("waiters").equals(String.valueOf(waiters)) ? 1 : null);
    }

    /** Until so many of Redisson's waiters have seen that the lock is taken, and sleep. */
    void untilRedissonSleeps(String key) throws Exception {
        String channel = key.contains("{") ? "redisson_lock__channel:" + key : "redisson_lock__channel:{" + key + "}";
        Wait.until("Redisson waits for " + key, () -> {
            List<?> subscribed = (List<?>) control.call("PUBSUB", "NUMSUB", channel);
            return (Long) subscribed.get(1) > 0 ? 1 : null;
        });
        untilScriptsRest();
    }

    /** It tries once more after it has subscribed: that shows in nothing but the number of its scripts. */
    void untilScriptsRest() throws Exception {
        Object before = null;
        for (Object now = scripts(); !now.equals(before); now = scripts()) {
            before = now;
            Thread.sleep(150);
        }
    }

    private Object scripts() {
        Map<String, String> commands = section("commandstats");
        return commands.get("cmdstat_evalsha") + "," + commands.get("cmdstat_eval");
    }

    Map<String, String> section(String name) {
        Map<String, String> fields = new TreeMap<>();
        for (String line : control.run("INFO " + name).toString().split("\r\n")) {
            String[] parts = line.split(":", 2);
            fields.put(parts[0], parts[parts.length - 1]);
        }
        return fields;
    }

    /** Also when it hangs. */
    @Override
    public void close() {
        process.destroyForcibly();
        for (RedissonClient client : clients) {
            // Not waited for: its server is gone.
            new Thread(() -> client.shutdown(0, 1, java.util.concurrent.TimeUnit.SECONDS)).start();
        }
    }
}
