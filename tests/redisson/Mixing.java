import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** What must not be mixed: what comes of it is to be what the guide says, and never a server that hangs. */
final class Mixing extends Group {
    private static final String LOCK = "LOCK.ACQUIRE k alice 60000";
    private static final String SHARED_LOCK = "LOCK.ACQUIRE k alice 60000 SHARED";

    Mixing(Site site) {
        super(site);
    }

    void run() {
        Table.chapter("What must never share a name");
        twoHolders();
        otherKinds();
        Table.chapter("Read locks of Redisson's on a name of kvlock's: the server goes on serving");
        serves("LOCK.ACQUIRE; readLock().tryLock(), unlock()", LOCK, (here, lock) -> lock.readLock().tryLock());
        serves("LOCK.ACQUIRE … SHARED; readLock().tryLock(), unlock()", SHARED_LOCK, (here, lock) -> lock.readLock().tryLock());
        serves("LOCK.ACQUIRE; writeLock().tryLock(), unlock(); readLock().tryLock(), unlock()", LOCK, (here, lock) -> {
            lock.writeLock().tryLock();
            lock.writeLock().unlock();
            lock.readLock().tryLock();
        });
        serves("LOCK.ACQUIRE; readLock().lock() by two threads; unlock() by one", LOCK, (here, lock) -> {
            two.run(lock.readLock()::lock);
            lock.readLock().lock();
        });
        serves("lock(), LOCK.ACQUIRE by uuid:thread; another thread's readLock().tryLock(), unlock()", "PING", (here, lock) -> {
            RedissonClient client = here.redisson();
            two.run(client.getLock("k")::lock);
            must(here.control, "k", "LOCK.ACQUIRE k " + two.owner(client) + " 60000");
            lock.readLock().tryLock();
        });
        serves("SEM.SET, SEM.ACQUIRE; readLock().tryLock(), unlock()",
            "SEM.SET k 4000000000; SEM.ACQUIRE k alice 4000000000 60000", (here, lock) -> lock.readLock().tryLock());
        serves("LATCH.SET, LATCH.COUNTDOWN; readLock().tryLock(), unlock()",
            "LATCH.SET k 4000000000; LATCH.COUNTDOWN k alice", (here, lock) -> lock.readLock().tryLock());
    }

    private void twoHolders() {
        String beside = "true, as beside an RLock; LOCK commands: WRONGTYPE";
        String besideReaders = "true; LOCK commands, also SHARED: WRONGTYPE";
        Function<String, RLock> writeLock = key -> first.getReadWriteLock(key).writeLock();
        Function<String, RLock> readLock = key -> first.getReadWriteLock(key).readLock();
        Function<String, RLock> values = key -> first.getMultiLock(key, List.of("v1", "v2"));
        takes("writeLock().tryLock() while kvlock holds", beside, LOCK, writeLock);
        takes("writeLock().tryLock() while kvlock's readers hold", besideReaders, SHARED_LOCK, writeLock);
        takes("readLock().tryLock() while kvlock's readers hold", besideReaders, SHARED_LOCK, readLock);
        takes("getMultiLock(group, values).tryLock() while kvlock holds", beside, LOCK, values);
        takes("the other way round", "WRONGTYPE", "PING", values);
    }

    /** It is locked, and then every LOCK command refuses the key. */
    private void takes(String what, String expected, String begin, Function<String, RLock> lock) {
        Table.check(what, expected, () -> {
            String key = key();
            must(key, begin);
            boolean good = one.call(lock.apply(key)::tryLock);
            StringBuilder seen = new StringBuilder(good + "; ");
            String mode = begin.endsWith(" SHARED") ? " SHARED" : "";
            for (String command : List.of("LOCK.INFO k", "LOCK.ACQUIRE k bob 1000" + mode, "LOCK.WAIT k bob 1000 100" + mode,
                "LOCK.RENEW k alice 1000", "LOCK.RELEASE k alice" + mode, "LOCK.FORCERELEASE k")) {
                String answer = answer(redis, command.replace(" k", " " + key));
                good &= answer.equals("WRONGTYPE");
                seen.append(answer.equals("WRONGTYPE") ? "" : command + ": " + answer + "; ");
            }
            return Table.seen(good, seen.append(good ? "all WRONGTYPE" : ""));
        });
    }

    private void otherKinds() {
        Table.check("RFencedLock.lockAndGetToken() of a lock without a TTL", "-1 at once, as beside an RLock", () -> {
            RFencedLock lock = first.getFencedLock(key());
            must(lock.getName(), LOCK + "; PERSIST k");
            Long token = one.call(lock::lockAndGetToken);
            String owner = site.info(lock.getName(), "owner");
            return Table.seen(token == -1 && owner.equals("alice"), token + ", the owner is " + owner);
        });
        Table.check("RLock.forceUnlock() on the name of a semaphore, of a latch", "both are removed", () -> {
            boolean good = true;
            for (String command : List.of("SEM.SET k 3", "LATCH.SET k 3")) {
                String key = key();
                must(key, command);
                one.call(first.getLock(key)::forceUnlock);
                good &= isFree(key);
            }
            return Table.seen(good, "removed");
        });
        Table.check("getSemaphore, getPermitExpirableSemaphore, getCountDownLatch on a name of kvlock's", "exceptions", () -> {
            String key = key();
            must(key, LOCK);
            String thrown = one.thrownBy(first.getSemaphore(key)::tryAcquire) + ", "
                + one.thrownBy(first.getPermitExpirableSemaphore(key)::tryAcquire) + ", "
                + one.thrownBy(first.getCountDownLatch(key)::getCount);
            boolean unchanged = site.info(key, "owner").equals("alice");
            return Table.seen(unchanged && thrown.equals("RedisException, RedisException, RedisException"), thrown);
        });
        Table.check("an RMap with one field that is a number", "LOCK.INFO takes it for a lock", () -> {
            String key = key();
            first.getMap(key, StringCodec.INSTANCE).put("a", "1");
            String owner = site.info(key, "owner");
            return Table.seen(owner.equals("a"), "owner " + owner + ", lease " + site.info(key, "lease-left"));
        });
    }

    private interface Steps {
        void take(Site site, RReadWriteLock lock) throws Exception;
    }

    /** On a server of its own, which may hang. */
    private void serves(String what, String begin, Steps steps) {
        Table.check(what, "the server answers", () -> {
            try (Site here = new Site()) {
                must(here.control, "k", begin);
                Config config = Site.config();
                config.useSingleServer().setAddress(here.url()).setTimeout(2_000).setRetryAttempts(0);
                RReadWriteLock lock = here.redisson(config).getReadWriteLock("k");
                one.run(() -> steps.take(here, lock));
                String how;
                try {
                    how = one.startThrowing(lock.readLock()::unlock).get(4, TimeUnit.SECONDS);
                } catch (TimeoutException e) {
                    how = "does not come back";
                }
                String answer = answer(here.connect(), "SET another 1");
                return Table.seen("OK".equals(answer), "unlock(): " + how + "; SET of another key: " + answer);
            }
        });
    }
}
