import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** A connection that sends commands as they stand: kvlock's side. */
final class Redis implements AutoCloseable {
    /** An error that the server has answered. */
    record Refused(String text) {
        @Override
        public String toString() {
            return text.split(" ", 2)[0];
        }
    }

    private final Socket socket;
    private final InputStream input;

    Redis(int port) {
        try {
            socket = new Socket("127.0.0.1", port);
            socket.setTcpNoDelay(true);
            input = new BufferedInputStream(socket.getInputStream());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Long, String, List, null or Refused. Words are cut at spaces. */
    Object run(String line) {
        return call((Object[]) line.split(" "));
    }

    Object call(Object... words) {
        try {
            send(words);
            return receive();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The same, on another thread: for a command that blocks. */
    CompletableFuture<Object> later(String line) {
        CompletableFuture<Object> answer = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                answer.complete(run(line));
            } catch (RuntimeException e) {
                answer.completeExceptionally(e);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return answer;
    }

    /** How long a command may take before it fails; 0: as long as it takes. */
    Redis patience(int ms) {
        try {
            socket.setSoTimeout(ms);
            return this;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void send(Object... words) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(("*" + words.length + "\r\n").getBytes(StandardCharsets.UTF_8));
        for (Object word : words) {
            byte[] bytes = word.toString().getBytes(StandardCharsets.UTF_8);
            out.write(("$" + bytes.length + "\r\n").getBytes(StandardCharsets.UTF_8));
            out.write(bytes);
            out.write("\r\n".getBytes(StandardCharsets.UTF_8));
        }
        socket.getOutputStream().write(out.toByteArray());
    }

    private Object receive() throws IOException {
        String line = line();
        String rest = line.substring(1);
        switch (line.charAt(0)) {
            case '+':
                return rest;
            case '-':
                return new Refused(rest);
            case ':':
                return Long.parseLong(rest);
            case '$':
                int length = Integer.parseInt(rest);
                if (length < 0) {
                    return null;
                }
                byte[] bytes = input.readNBytes(length + 2);
                return new String(bytes, 0, length, StandardCharsets.UTF_8);
            case '*':
                int count = Integer.parseInt(rest);
                if (count < 0) {
                    return null;
                }
                List<Object> items = new ArrayList<>();
                for (int i = 0; i < count; i++) {
                    items.add(receive());
                }
                return items;
            default:
                throw new IOException("no reply: " + line);
        }
    }

    private String line() throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int next = input.read(); next != '\r'; next = input.read()) {
            if (next < 0) {
                throw new EOFException("the connection is closed");
            }
            line.write(next);
        }
        input.read();
        return line.toString(StandardCharsets.UTF_8);
    }
}
