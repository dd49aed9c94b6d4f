import io.netty.resolver.DefaultAddressResolverGroup;
import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisClient;
import org.redisson.client.RedisClientConfig;
import org.redisson.client.RedisException;
import org.redisson.config.Config;

/** A private server with the module, and who is connected to it. Ends with this program. */
final class Site implements AutoCloseable {
    private static final List<Process> STARTED = new ArrayList<>();
    private static String program;
    private static String module;
    private static Path folder;

    final int port = freePort();
    private final Process process;
    private final RedisClient client;
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
        Path place = Files.createDirectories(folder.resolve(String.valueOf(port)));
        List<String> line = new ArrayList<>(List.of(program, "--port", String.valueOf(port), "--bind", "127.0.0.1",
            "--dir", place.toString(), "--logfile", "server.log", "--save", "", "--loadmodule", module));
        line.addAll(List.of(arguments));
        File nowhere = new File("/dev/null");
        process = new ProcessBuilder(line).redirectOutput(nowhere).redirectError(nowhere).start();
        STARTED.add(process);
        client = RedisClient.create(
            new RedisClientConfig().setAddress(url()).setResolverGroup(DefaultAddressResolverGroup.INSTANCE));
        Wait.until("the server answers", () -> {
            if (!process.isAlive()) {
                throw new IllegalStateException("the server has ended: see " + place.resolve("server.log"));
            }
            try {
                return connect().run("PING").equals("PONG");
            } catch (RedisException e) {
                return false;
            }
        });
        control = connect();
    }

    private static int freePort() throws IOException {
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
        return new Redis(client);
    }

    String url() {
        return "redis://127.0.0.1:" + port;
    }

    /** A client of Redisson's as a process would have it, with a short watchdog. */
    RedissonClient redisson() {
        Config config = config();
        config.useSingleServer().setAddress(url()).setConnectionMinimumIdleSize(2);
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

    /** A field of LOCK.INFO. */
    String info(String key, String field) {
        List<?> info = (List<?>) control.run("LOCK.INFO " + key);
        return String.valueOf(info.get(info.indexOf(field) + 1));
    }

    long leaseLeft(String key) {
        return Long.parseLong(info(key, "lease-left"));
    }

    /** A kvlock client in line, seen to be there. */
    Future<Object> inLine(String key, String owner, long leaseMs) throws Exception {
        Future<Object> granted = connect().later("LOCK.WAIT " + key + " " + owner + " " + leaseMs + " 0");
        Wait.until(owner + " waits for " + key, () -> info(key, "waiters").equals("1"));
        return granted;
    }
    /** Until Redisson has seen that the lock, which is at one of these, is taken, and sleeps; whether its channel is sharded. */
    static boolean untilRedissonSleeps(String key, Site... sites) throws Exception {
        Wait.until("Redisson waits for " + key, () -> listens("NUMSUB", key, sites) || listens("SHARDNUMSUB", key, sites));
        // It tries once more after it has subscribed: that shows in nothing but the number of its scripts.
        String before = null;
        for (String now = scripts(sites); !now.equals(before); now = scripts(sites)) {
            before = now;
            Thread.sleep(150);
        }
        return listens("SHARDNUMSUB", key, sites);
    }

    private static boolean listens(String kind, String key, Site... sites) {
        String question = "PUBSUB " + kind + " redisson_lock__channel:{" + key + "}";
        return Stream.of(sites).anyMatch(site -> (Long) ((List<?>) site.control.run(question)).get(1) > 0);
    }

    private static String scripts(Site... sites) {
        return Stream.of(sites).map(site -> site.field("cmdstat_evalsha") + site.field("cmdstat_eval")).toList().toString();
    }

    /** A field of INFO; empty if there is none. */
    String field(String name) {
        Matcher field = Pattern.compile("(?m)^" + name + ":(.*?)\\s*$").matcher(control.run("INFO everything").toString());
        return field.find() ? field.group(1) : "";
    }

    /** Also when it hangs. */
    @Override
    public void close() {
        process.destroyForcibly();
        client.shutdownAsync();
        // Not waited for: its server is gone.
        clients.forEach(client -> new Thread(() -> client.shutdown(0, 1, TimeUnit.SECONDS)).start());
    }
}
