import java.net.SocketTimeoutException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** What must not be mixed: what comes of it is to be what the guide says, and never a server that hangs. */
final class Mixing extends Group {
    Mixing(Site site) {
        super(site);
    }

    void run() {
        Table.chapter("What must never share a name");
        twoHolders();
        otherKinds();
        Table.chapter("Read locks of Redisson's on a name of kvlock's: the server goes on serving");
        serves("LOCK.ACQUIRE; readLock().tryLock(), unlock()", (here, lock) -> {
            must(here.control, "LOCK.ACQUIRE k alice 60000");
            lock.readLock().tryLock();
        });
        serves("LOCK.ACQUIRE … SHARED; readLock().tryLock(), unlock()", (here, lock) -> {
            must(here.control, "LOCK.ACQUIRE k alice 60000 SHARED");
            lock.readLock().tryLock();
        });
        serves("LOCK.ACQUIRE; writeLock().tryLock(), unlock(); readLock().tryLock(), unlock()", (here, lock) -> {
            must(here.control, "LOCK.ACQUIRE k alice 60000");
            lock.writeLock().tryLock();
            lock.writeLock().unlock();
            lock.readLock().tryLock();
        });
        serves("LOCK.ACQUIRE; readLock().lock() by two threads; unlock() by one", (here, lock) -> {
            must(here.control, "LOCK.ACQUIRE k alice 60000");
            two.run(lock.readLock()::lock);
            lock.readLock().lock();
        });
        serves("lock(), LOCK.ACQUIRE by uuid:thread; another thread's readLock().tryLock(), unlock()", (here, lock) -> {
            RedissonClient client = here.redisson();
            two.run(client.getLock("k")::lock);
            must(here.control, "LOCK.ACQUIRE k " + two.owner(client) + " 60000");
            lock.readLock().tryLock();
        });
        serves("SEM.SET, SEM.ACQUIRE; readLock().tryLock(), unlock()", (here, lock) -> {
            must(here.control, "SEM.SET k 4000000000");
            must(here.control, "SEM.ACQUIRE k alice 4000000000 60000");
            lock.readLock().tryLock();
        });
        serves("LATCH.SET, LATCH.COUNTDOWN; readLock().tryLock(), unlock()", (here, lock) -> {
            must(here.control, "LATCH.SET k 4000000000");
            must(here.control, "LATCH.COUNTDOWN k alice");
            lock.readLock().tryLock();
        });
    }

    private void twoHolders() {
        Table.check("writeLock().tryLock() while kvlock holds", "true, as beside an RLock; LOCK commands: WRONGTYPE", () -> {
            String key = key();
            must("LOCK.ACQUIRE " + key + " alice 60000");
            boolean got = one.call(first.getReadWriteLock(key).writeLock()::tryLock);
            return wrong(got, key, "");
        });
        Table.check("writeLock().tryLock() while kvlock's readers hold", "true; LOCK commands, also SHARED: WRONGTYPE", () -> {
            String key = key();
            must("LOCK.ACQUIRE " + key + " alice 60000 SHARED");
            boolean got = one.call(first.getReadWriteLock(key).writeLock()::tryLock);
            return wrong(got, key, " SHARED");
        });
        Table.check("readLock().tryLock() while kvlock's readers hold", "true; LOCK commands, also SHARED: WRONGTYPE", () -> {
            String key = key();
            must("LOCK.ACQUIRE " + key + " alice 60000 SHARED");
            boolean got = one.call(first.getReadWriteLock(key).readLock()::tryLock);
            return wrong(got, key, " SHARED");
        });
        Table.check("getMultiLock(group, values).tryLock() while kvlock holds",
            "true, as beside an RLock; LOCK commands: WRONGTYPE", () -> {
                String key = key();
                must("LOCK.ACQUIRE " + key + " alice 60000");
                boolean got = one.call(first.getMultiLock(key, List.of("v1", "v2"))::tryLock);
                return wrong(got, key, "");
            });
        Table.check("the other way round", "WRONGTYPE", () -> {
            String key = key();
            boolean got = one.call(first.getMultiLock(key, List.of("v1", "v2"))::tryLock);
            return wrong(got, key, "");
        });
    }

    /** Every LOCK command refuses the key. */
    private Table.Seen wrong(boolean got, String key, String mode) {
        StringBuilder seen = new StringBuilder(got + "; ");
        boolean good = got;
        for (String command : List.of("LOCK.INFO " + key, "LOCK.ACQUIRE " + key + " bob 1000" + mode,
            "LOCK.WAIT " + key + " bob 1000 100" + mode, "LOCK.RENEW " + key + " alice 1000",
            "LOCK.RELEASE " + key + " alice" + mode, "LOCK.FORCERELEASE " + key)) {
            Object answer = redis.run(command);
            boolean refuses = answer instanceof Redis.Refused refused && refused.toString().equals("WRONGTYPE");
            good &= refuses;
            if (!refuses) {
                seen.append(command.replace(key, "k")).append(": ").append(answer).append("; ");
            }
        }
        return Table.seen(good, seen.append(good ? "all WRONGTYPE" : ""));
    }

    private void otherKinds() {
        Table.check("RFencedLock.lockAndGetToken() of a lock without a TTL", "-1 at once, as beside an RLock", () -> {
            RFencedLock lock = first.getFencedLock(key());
            must("LOCK.ACQUIRE " + lock.getName() + " alice 60000");
            must("PERSIST " + lock.getName());
            Long token = one.call(lock::lockAndGetToken);
            Object owner = site.info(lock.getName()).get("owner");
            return Table.seen(token == -1 && owner.equals("alice"), token + ", the owner is " + owner);
        });
        Table.check("RLock.forceUnlock() on the name of a semaphore, of a latch", "both are removed", () -> {
            String semaphore = key();
            String latch = key();
            must("SEM.SET " + semaphore + " 3");
            must("LATCH.SET " + latch + " 3");
            one.call(first.getLock(semaphore)::forceUnlock);
            one.call(first.getLock(latch)::forceUnlock);
            return Table.seen(isFree(semaphore) && isFree(latch), "removed");
        });
        Table.check("getSemaphore, getPermitExpirableSemaphore, getCountDownLatch on a name of kvlock's", "exceptions", () -> {
            String key = key();
            must("LOCK.ACQUIRE " + key + " alice 60000");
            String thrown = one.thrownBy(first.getSemaphore(key)::tryAcquire) + ", "
                + one.thrownBy(first.getPermitExpirableSemaphore(key)::tryAcquire) + ", "
                + one.thrownBy(first.getCountDownLatch(key)::getCount);
            boolean unchanged = site.info(key).get("owner").equals("alice");
            return Table.seen(unchanged && thrown.equals("RedisException, RedisException, RedisException"), thrown);
        });
        Table.check("an RMap with one field that is a number", "LOCK.INFO takes it for a lock", () -> {
            String key = key();
            first.getMap(key, StringCodec.INSTANCE).put("a", "1");
            Map<String, Object> info = site.info(key);
            return Table.seen("a".equals(info.get("owner")), "owner " + info.get("owner") + ", lease " + info.get("lease-left"));
        });
    }

    private interface Steps {
        void take(Site site, RReadWriteLock lock) throws Exception;
    }

    /** On a server of its own, which may hang. */
    private void serves(String what, Steps steps) {
        Table.check(what, "the server answers", () -> {
            try (Site here = new Site()) {
                Config config = Site.config();
                config.useSingleServer().setAddress(Site.url(here.port)).setTimeout(2_000).setRetryAttempts(0);
                RReadWriteLock lock = here.redisson(config).getReadWriteLock("k");
                one.run(() -> steps.take(here, lock));
                RLock read = lock.readLock();
                CompletableFuture<Object> unlocked = one.start(() -> {
                    read.unlock();
                    return "ok";
                });
                Object how;
                try {
                    how = unlocked.get(4, TimeUnit.SECONDS);
                } catch (TimeoutException e) {
                    how = "does not come back";
                } catch (java.util.concurrent.ExecutionException e) {
                    how = e.getCause().getClass().getSimpleName();
                }
                Object answer = answer(here);
                return Table.seen("OK".equals(answer), "unlock(): " + how + "; SET of another key: " + answer);
            }
        });
    }

    private static Object answer(Site site) {
        try {
            return site.connect().patience(8_000).run("SET another 1");
        } catch (java.io.UncheckedIOException e) {
            return e.getCause() instanceof SocketTimeoutException ? "none in 8 s" : e.getCause();
        }
    }
}
