import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

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

    <T> Future<T> start(Callable<T> work) {
        return thread.submit(work);
    }

    /** Its moment of return. */
    Future<Long> startTimed(Work work) {
        return start(() -> {
            work.run();
            return System.nanoTime();
        });
    }

    <T> T call(Callable<T> work) throws Exception {
        return Wait.get(start(work));
    }

    void run(Work... works) throws Exception {
        for (Work work : works) {
            Wait.get(startTimed(work));
        }
    }

    /** What it throws, by the name of its class; "nothing". */
    String thrownBy(Work work) throws Exception {
        return Wait.get(startThrowing(work));
    }

    Future<String> startThrowing(Work work) {
        return start(() -> {
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
