import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Array;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.Codec;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Redisson as a server for transcripts. Each connection has its own thread, so Redisson treats it as a separate owner.
 * `connect` with a configuration selects a Redisson client; all threads with the same configuration share one. Every other
 * command is a chain of calls on this client, as in `getReadWriteLock k . readLock . tryLock 50 MILLISECONDS`. Its reply is
 * the result of the last call, or the exception.
 */
final class Driver {
    private static final Map<String, RedissonClient> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<Long, Thread> THREADS = new ConcurrentHashMap<>();

    private final long id = Thread.currentThread().getId();
    private RedissonClient client;

    private Driver() {}

    /** The argument is a configuration file like a server's, whose first line is the port. */
    public static void main(String[] args) throws Exception {
        String port = Files.readAllLines(Path.of(args[0])).get(0).replace("port ", "");
        // Loads the classes now, so that the first command does not wait for that.
        Config config = new Config().setLazyInitialization(true);
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
        Redisson.create(config).shutdown(0, 0, TimeUnit.SECONDS);
        try (ServerSocket server = new ServerSocket(Integer.parseInt(port), 0, InetAddress.getByName("127.0.0.1"))) {
            while (true) {
                Socket socket = server.accept();
                new Thread(() -> new Driver().serve(socket)).start();
            }
        }
    }

    private void serve(Socket socket) {
        THREADS.put(id, Thread.currentThread());
        try (socket) {
            InputStream in = new BufferedInputStream(socket.getInputStream());
            for (List<String> words = command(in); !words.isEmpty(); words = command(in)) {
                socket.getOutputStream().write((answer(words) + "\r\n").getBytes(UTF_8));
            }
        } catch (IOException gone) {
            // The client has disconnected, so this thread ends.
        } finally {
            THREADS.remove(id);
        }
    }

    /** The words of the next command. Empty if the connection has ended. */
    private static List<String> command(InputStream in) throws IOException {
        List<String> words = new ArrayList<>();
        String count = line(in);
        for (int left = count.isEmpty() ? 0 : Integer.parseInt(count.substring(1)); left > 0; left--) {
            words.add(new String(in.readNBytes(Integer.parseInt(line(in).substring(1))), UTF_8));
            line(in);
        }
        return words;
    }

    private static String line(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next = in.read(); next != '\n' && next >= 0; next = in.read()) {
            line.append((char) next);
        }
        return line.toString().trim();
    }

    private String answer(List<String> words) {
        try {
            return switch (words.get(0)) {
                case "PING" -> "+PONG";
                case "HELLO" -> "+OK";
                case "INFO" -> bulk("process_id:" + ProcessHandle.current().pid() + "\r\n");
                case "CLIENT" -> words.size() == 2 ? ":" + id : bulk(flags(Long.parseLong(words.get(3))));
                case "connect" -> {
                    client = CLIENTS.computeIfAbsent(words.get(1),
                        yaml -> Redisson.create(Config.fromYAML(yaml).setThreads(4).setNettyThreads(4)));
                    yield "+OK";
                }
                case "owner" -> bulk(client.getId() + ":" + id);
                default -> reply(called(words));
            };
        } catch (InvocationTargetException e) {
            return error(e.getCause());
        } catch (Exception e) {
            return error(e);
        }
    }

    /** The reply to `CLIENT LIST ID` as far as the harness reads it: whether the client exists, and whether it is blocked. */
    private static String flags(long id) {
        Thread thread = THREADS.get(id);
        return thread == null ? "" : "id=" + id + " flags=" + (sleeps(thread) ? "b" : "N") + " ";
    }

    /** Whether the thread waits for a message about a lock. */
    private static boolean sleeps(Thread thread) {
        return Stream.of(thread.getStackTrace()).anyMatch(at -> at.getClassName().equals(Semaphore.class.getName()));
    }

    private Object called(List<String> words) throws ReflectiveOperationException {
        Object on = client;
        for (int begin = 0, end; begin < words.size(); begin = end + 1) {
            int dot = words.subList(begin, words.size()).indexOf(".");
            end = dot < 0 ? words.size() : begin + dot;
            on = call(on, words.get(begin), words.subList(begin + 1, end));
        }
        return on;
    }

    private Object call(Object on, String name, List<String> words) throws ReflectiveOperationException {
        for (Method method : on.getClass().getMethods()) {
            Object[] arguments = method.getName().equals(name) ? arguments(method, words) : null;
            if (arguments != null) {
                Object result = method.invoke(on, arguments);
                return method.getReturnType() == void.class ? "OK" : result;
            }
        }
        throw new NoSuchMethodException(name + " " + words);
    }

    /** The words, converted to the method's parameters. `null` if they do not fit. */
    private Object[] arguments(Method method, List<String> words) {
        Class<?>[] types = method.getParameterTypes();
        if (!method.isVarArgs()) {
            Object[] values = types.length == words.size() ? new Object[types.length] : null;
            return values != null && fill(values, words, types) ? values : null;
        }
        Class<?> type = types[0].getComponentType();
        Object[] values = (Object[]) Array.newInstance(type, words.size());
        return fill(values, words, words.stream().map(word -> type).toArray(Class<?>[]::new)) ? new Object[] {values} : null;
    }

    private boolean fill(Object[] values, List<String> words, Class<?>[] types) {
        for (int i = 0; i < values.length; i++) {
            Object value = value(types[i], words.get(i));
            if (value == null) {
                return false;
            }
            values[i] = value;
        }
        return true;
    }

    private Object value(Class<?> type, String word) {
        if (type == String.class || type == Object.class) {
            return word;
        } else if (type == long.class) {
            return Long.valueOf(word);
        } else if (type == TimeUnit.class) {
            return TimeUnit.valueOf(word);
        } else if (type == Codec.class) {
            return StringCodec.INSTANCE;
        } else if (type == Collection.class) {
            return word.contains(",") ? List.of(word.split(",")) : null;
        }
        return type == RLock.class && !word.contains(",") ? client.getLock(word) : null;
    }

    private static String reply(Object result) {
        if (result == null) {
            return "$-1";
        }
        String mark = result instanceof Number ? ":" : "+";
        return mark + result;
    }

    private static String bulk(String text) {
        return "$" + text.getBytes(UTF_8).length + "\r\n" + text;
    }

    private static String error(Throwable thrown) {
        return "-" + thrown.getClass().getSimpleName() + " " + String.valueOf(thrown.getMessage()).replaceAll("\\s+", " ");
    }
}
