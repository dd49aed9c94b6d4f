import java.util.Arrays;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RFuture;
import org.redisson.client.RedisClient;
import org.redisson.client.RedisConnection;
import org.redisson.client.codec.StringCodec;
import org.redisson.client.protocol.RedisCommand;
import org.redisson.client.protocol.decoder.MultiDecoder;

/** A connection that sends commands as they stand: kvlock's side. It is one of Redisson's, below all that this knows of locks. */
final class Redis {
    private static final long LONGEST_WAIT_MS = TimeUnit.MINUTES.toMillis(1);

    private final RedisConnection connection;

    Redis(RedisClient client) {
        connection = client.connect();
    }

    /** Long, String, List or null; throws the error that the server answers. Words are cut at spaces. */
    Object run(String line) {
        return call(line.split(" "));
    }

    Object call(String... words) {
        return connection.await(send(words).toCompletableFuture());
    }

    /** The same for a command that blocks. */
    Future<Object> later(String line) {
        return send(line.split(" "));
    }

    void close() {
        connection.closeAsync();
    }

    private RFuture<Object> send(String... words) {
        MultiDecoder<Object> list = (parts, state) -> parts;
        Object[] arguments = Arrays.copyOfRange(words, 1, words.length);
        return connection.async(LONGEST_WAIT_MS, StringCodec.INSTANCE, new RedisCommand<>(words[0], list), arguments);
    }
}
