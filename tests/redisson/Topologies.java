import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.ShardedSubscriptionMode;
import org.redisson.config.SubscriptionMode;

/** Redisson listens at a replica, and at nodes of a cluster. */
final class Topologies {
    private static final int NODES = 3;

    private final Caller one = new Caller();

    void run() throws Exception {
        Table.chapter("With a replica, in a cluster");
        replica();
        cluster();
    }

    private void replica() throws Exception {
        try (Site primary = new Site(); Site replica = new Site("--replicaof", "127.0.0.1", String.valueOf(primary.port))) {
            Wait.until("the replica follows", () -> primary.section("replication").get("slave0") != null
                && replica.section("replication").get("master_link_status").equals("up") ? 1 : null);
            RedissonClient reader = follower(primary, replica, false);
            primary.control.run("CONFIG SET kvlock.redisson-channel both");
            Table.check("subscribed at a replica: LOCK.RELEASE, LOCK.FORCERELEASE", "woken within a second", () -> {
                long slowest = 0;
                for (String release : List.of("LOCK.RELEASE %s alice", "LOCK.FORCERELEASE %s")) {
                    RLock lock = reader.getLock(Group.key());
                    primary.control.run("LOCK.ACQUIRE " + lock.getName() + " alice 60000");
                    CompletableFuture<Long> sleeper = one.startTimed(lock::lock);
                    replica.untilRedissonSleeps(lock.getName());
                    long began = System.nanoTime();
                    primary.control.run(String.format(release, lock.getName()));
                    slowest = Math.max(slowest, (Wait.get(sleeper) - began) / 1_000_000);
                    one.run(lock::unlock);
                }
                return Table.seen(slowest < Group.SOON_MS, slowest + " ms at most in 2");
            });
            for (boolean checks : new boolean[] {true, false}) {
                Table.check("checkLockSyncedSlaves " + checks + ": 10 times lock() and unlock()",
                    "WAIT is sent with each", () -> waits(primary, follower(primary, replica, checks)));
            }
        }
    }

    private static RedissonClient follower(Site primary, Site replica, boolean checks) {
        Config config = Site.config().setCheckLockSyncedSlaves(checks);
        config.useMasterSlaveServers().setMasterAddress(Site.url(primary.port)).addSlaveAddress(Site.url(replica.port))
            .setReadMode(ReadMode.SLAVE).setSubscriptionMode(SubscriptionMode.SLAVE);
        return primary.redisson(config);
    }

    private Table.Seen waits(Site primary, RedissonClient client) throws Exception {
        primary.control.run("CONFIG RESETSTAT");
        RLock lock = client.getLock(Group.key());
        for (int i = 0; i < 10; i++) {
            one.run(lock::lock);
            one.run(lock::unlock);
        }
        String calls = primary.section("commandstats").getOrDefault("cmdstat_wait", "calls=0,").replaceAll("calls=(\\d+),.*", "$1");
        return Table.seen(Integer.parseInt(calls) >= 20, calls + " WAIT");
    }

    private void cluster() throws Exception {
        List<Site> nodes = new ArrayList<>();
        try {
            for (int i = 0; i < NODES; i++) {
                nodes.add(new Site("--cluster-enabled", "yes"));
            }
            join(nodes);
            Table.check("cluster, Redisson's defaults: 10 keys, LOCK.RELEASE", "a sharded channel, woken within a second",
                () -> woken(nodes, ShardedSubscriptionMode.AUTO, true));
            Table.check("shardedSubscriptionMode OFF, redisson-channel auto", "not woken: at the end of the lease that it saw, 4 s",
                () -> woken(nodes, ShardedSubscriptionMode.OFF, false));
            Table.check("shardedSubscriptionMode OFF, redisson-channel both", "woken within a second", () -> {
                nodes.forEach(node -> node.control.run("CONFIG SET kvlock.redisson-channel both"));
                return woken(nodes, ShardedSubscriptionMode.OFF, true);
            });
        } finally {
            nodes.forEach(Site::close);
        }
    }

    private static void join(List<Site> nodes) throws Exception {
        int slots = 16_384 / NODES + 1;
        for (int i = 0; i < NODES; i++) {
            int last = Math.min(16_383, (i + 1) * slots - 1);
            nodes.get(i).control.run("CLUSTER ADDSLOTSRANGE " + i * slots + " " + last);
            nodes.get(i).control.run("CLUSTER SET-CONFIG-EPOCH " + (i + 1));
            nodes.get(i).control.run("CLUSTER MEET 127.0.0.1 " + nodes.get(0).port);
        }
        for (Site node : nodes) {
            Wait.until("the cluster is there", () -> {
                String info = node.control.run("CLUSTER INFO").toString();
                return info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:" + NODES) ? 1 : null;
            });
        }
    }

    private Table.Seen woken(List<Site> nodes, ShardedSubscriptionMode mode, boolean soon) throws Exception {
        Config config = Site.config();
        config.useClusterServers().addNodeAddress(Site.url(nodes.get(0).port)).setShardedSubscriptionMode(mode);
        RedissonClient client = nodes.get(0).redisson(config);
        long slowest = 0;
        int sharded = 0;
        for (int i = 0; i < (soon ? 10 : 1); i++) {
            RLock lock = client.getLock(Group.key());
            Site node = owner(nodes, lock.getName());
            long began = System.nanoTime();
            node.control.run("LOCK.ACQUIRE " + lock.getName() + " alice " + (soon ? 60_000 : 4_000));
            CompletableFuture<Long> sleeper = one.startTimed(lock::lock);
            sharded += untilSubscribed(nodes, lock.getName());
            began = soon ? System.nanoTime() : began;
            node.control.run("LOCK.RELEASE " + lock.getName() + " alice");
            slowest = Math.max(slowest, (Wait.get(sleeper) - began) / 1_000_000);
            one.run(lock::unlock);
        }
        boolean asExpected = mode == ShardedSubscriptionMode.OFF ? sharded == 0 : sharded == 10;
        boolean inTime = soon ? slowest < Group.SOON_MS : slowest > 3_500 && slowest < 4_000 + Group.SOON_MS;
        return Table.seen(asExpected && inTime, slowest + " ms at most, sharded channels: " + sharded);
    }

    /** 1 if it is a sharded channel to which Redisson has subscribed; 0 if a classic one. */
    private static int untilSubscribed(List<Site> nodes, String key) throws Exception {
        String channel = "redisson_lock__channel:{" + key + "}";
        int sharded = Wait.until("Redisson waits for " + key, () -> {
            for (Site node : nodes) {
                for (int kind = 0; kind < 2; kind++) {
                    List<?> answer = (List<?>) node.control.call("PUBSUB", kind == 1 ? "SHARDNUMSUB" : "NUMSUB", channel);
                    if ((Long) answer.get(1) > 0) {
                        return kind;
                    }
                }
            }
            return null;
        });
        owner(nodes, key).untilScriptsRest();
        return sharded;
    }

    private static Site owner(List<Site> nodes, String key) {
        Object answer = nodes.get(0).control.run("EXISTS " + key);
        if (!(answer instanceof Redis.Refused moved)) {
            return nodes.get(0);
        }
        int port = Integer.parseInt(moved.text().replaceAll(".*:", ""));
        return nodes.stream().filter(node -> node.port == port).findFirst().orElseThrow();
    }
}
