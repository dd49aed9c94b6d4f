import static org.redisson.config.ShardedSubscriptionMode.AUTO;
import static org.redisson.config.ShardedSubscriptionMode.OFF;

import java.util.stream.Stream;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.ShardedSubscriptionMode;
import org.redisson.config.SubscriptionMode;

/** Redisson listens at a replica, and at nodes of a cluster. */
final class Topologies {
    private static final int SLOTS_OF_A_NODE = 16_384 / 3 + 1;

    private final Caller one = new Caller();

    void run() throws Exception {
        Table.chapter("With a replica, in a cluster");
        try (Site primary = new Site(); Site replica = new Site("--replicaof", "127.0.0.1", String.valueOf(primary.port))) {
            replica(primary, replica);
        }
        String[] node = {"--cluster-enabled", "yes"};
        try (Site first = new Site(node); Site second = new Site(node); Site third = new Site(node)) {
            cluster(first, second, third);
        }
    }

    private void replica(Site primary, Site replica) throws Exception {
        Wait.until("the replica follows", () -> !primary.field("slave0").isEmpty()
            && replica.field("master_link_status").equals("up"));
        primary.control.run("CONFIG SET kvlock.redisson-channel both");
        Table.check("subscribed at a replica: LOCK.RELEASE, LOCK.FORCERELEASE", "woken within a second", () -> {
            RedissonClient reader = follower(primary, replica, false);
            long slowest = 0;
            for (String release : new String[] {"LOCK.RELEASE k alice", "LOCK.FORCERELEASE k"}) {
                RLock lock = reader.getLock(Group.key());
                Group.must(primary.control, lock.getName(), "LOCK.ACQUIRE k alice 60000");
                Group.Slept slept = Group.sleep(one, lock,
                    () -> Group.must(primary.control, lock.getName(), release), primary, replica);
                slowest = Math.max(slowest, slept.ms());
            }
            return Table.seen(slowest < Group.SOON_MS, slowest + " ms at most in 2");
        });
        for (boolean checks : new boolean[] {true, false}) {
            Table.check("checkLockSyncedSlaves " + checks + ": 10 times lock() and unlock()", "WAIT is sent with each", () -> {
                RLock lock = follower(primary, replica, checks).getLock(Group.key());
                primary.control.run("CONFIG RESETSTAT");
                for (int i = 0; i < 10; i++) {
                    one.run(lock::lock, lock::unlock);
                }
                String calls = primary.field("cmdstat_wait").replaceAll("calls=(\\d+),.*", "$1");
                return Table.seen(!calls.isEmpty() && Integer.parseInt(calls) >= 20, calls + " WAIT");
            });
        }
    }

    private static RedissonClient follower(Site primary, Site replica, boolean checks) {
        Config config = Site.config().setCheckLockSyncedSlaves(checks);
        config.useMasterSlaveServers().setMasterAddress(primary.url()).addSlaveAddress(replica.url())
            .setReadMode(ReadMode.SLAVE).setSubscriptionMode(SubscriptionMode.SLAVE);
        return primary.redisson(config);
    }

    private void cluster(Site... nodes) throws Exception {
        for (int i = 0; i < nodes.length; i++) {
            int last = Math.min(16_384, (i + 1) * SLOTS_OF_A_NODE) - 1;
            nodes[i].control.run("CLUSTER ADDSLOTSRANGE " + i * SLOTS_OF_A_NODE + " " + last);
            nodes[i].control.run("CLUSTER SET-CONFIG-EPOCH " + (i + 1));
            nodes[i].control.run("CLUSTER MEET 127.0.0.1 " + nodes[0].port);
        }
        for (Site node : nodes) {
            Wait.until("the cluster is there", () -> {
                String info = node.control.run("CLUSTER INFO").toString();
                return info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:" + nodes.length);
            });
        }
        Table.check("cluster, Redisson's defaults: 10 keys, LOCK.RELEASE", "a sharded channel, woken within a second",
            () -> woken(AUTO, true, nodes));
        Table.check("shardedSubscriptionMode OFF, redisson-channel auto", "not woken: at the end of the lease that it saw, 4 s",
            () -> woken(OFF, false, nodes));
        Table.check("shardedSubscriptionMode OFF, redisson-channel both", "woken within a second", () -> {
            Stream.of(nodes).forEach(node -> node.control.run("CONFIG SET kvlock.redisson-channel both"));
            return woken(OFF, true, nodes);
        });
    }

    private Table.Seen woken(ShardedSubscriptionMode mode, boolean soon, Site... nodes) throws Exception {
        Config config = Site.config();
        config.useClusterServers().addNodeAddress(nodes[0].url()).setShardedSubscriptionMode(mode);
        RedissonClient client = nodes[0].redisson(config);
        long slowest = 0;
        boolean good = true;
        for (int i = 0; i < (soon ? 10 : 1); i++) {
            RLock lock = client.getLock(Group.key());
            Long slot = (Long) nodes[0].control.run("CLUSTER KEYSLOT " + lock.getName());
            Redis node = nodes[(int) (slot / SLOTS_OF_A_NODE)].control;
            long began = System.nanoTime();
            Group.must(node, lock.getName(), "LOCK.ACQUIRE k alice " + (soon ? 60_000 : 4_000));
            Group.Slept slept = Group.sleep(one, lock, () -> Group.must(node, lock.getName(), "LOCK.RELEASE k alice"), nodes);
            long ms = soon ? slept.ms() : Wait.since(began);
            good &= slept.sharded() == (mode == AUTO);
            good &= soon ? ms < Group.SOON_MS : ms > 3_500 && ms < 4_000 + Group.SOON_MS;
            slowest = Math.max(slowest, ms);
        }
        return Table.seen(good, slowest + " ms at most" + (good ? ", channels as expected" : ""));
    }
}
