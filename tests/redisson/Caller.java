import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** One thread: to Redisson, an owner. */
final class Caller {
    interface Work {
        void run() throws Exception;
    }

    private final ExecutorService thread = Executors.newSingleThreadExecutor(work -> {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    });

    <T> CompletableFuture<T> start(Callable<T> work) {
        CompletableFuture<T> done = new CompletableFuture<>();
        thread.execute(() -> {
            try {
                done.complete(work.call());
            } catch (Exception e) {
                done.completeExceptionally(e);
            }
        });
        return done;
    }

    /** Its moment of return. */
    CompletableFuture<Long> startTimed(Work work) {
        return start(() -> {
            work.run();
            return System.nanoTime();
        });
    }

    <T> T call(Callable<T> work) throws Exception {
        return Wait.get(start(work));
    }

    void run(Work work) throws Exception {
        call(() -> {
            work.run();
            return null;
        });
    }

    /** What it throws, by the name of its class; "nothing". */
    String thrownBy(Work work) throws Exception {
        return call(() -> {
            try {
                work.run();
                return "nothing";
            } catch (Exception e) {
                return e.getClass().getSimpleName();
            }
        });
    }

    /** As Redisson names this thread of that client. */
    String owner(org.redisson.api.RedissonClient client) throws Exception {
        return client.getId() + ":" + call(() -> Thread.currentThread().getId());
    }
}
