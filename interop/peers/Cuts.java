import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/** What survives a connection that is cut now and then, while the session lives on: all that is seen is what must be right in the end. */
@SuppressWarnings("deprecation")
final class Cuts {
    private static final int ROUNDS = 3;

    static void addTo(Map<String, Recipes.Step> steps) {
        steps.put("cut-mutex", Cuts::mutex);
        steps.put("cut-read-write", Cuts::readWrite);
        steps.put("cut-semaphore", Cuts::semaphore);
        steps.put("cut-latch", Cuts::latch);
        steps.put("cut-nodes", Cuts::nodes);
        steps.put("cut-queue", Cuts::queue);
        steps.put("cut-caches", Cuts::caches);
    }

    private static List<CuratorFramework> clients(Recipes r) {
        return Arrays.asList(r.a, r.b, r.c);
    }

    /** Runs it while each connection is cut about once in so many frames: more of them than a recipe needs to begin again. */
    private static void cutting(Recipes r, String how, Recipes.Act act) throws Exception {
        r.ask(how, r.a);
        try {
            act.run();
        } finally {
            r.ask("calm", r.a);
        }
    }

    /** Adds one, once, whatever becomes of the answer; nobody else writes at the same time. */
    private static void add(CuratorFramework client, String node) throws Exception {
        Stat stat = new Stat();
        int n = Integer.parseInt(new String(client.getData().storingStatIn(stat).forPath(node))) + 1;
        try {
            client.setData().withVersion(stat.getVersion()).forPath(node, ("" + n).getBytes());
        } catch (KeeperException.BadVersionException e) { // of a second try, after a first whose answer was lost
            if (!new String(client.getData().forPath(node)).equals("" + n)) {
                throw e;
            }
        }
    }

    private static final class Room {
        final AtomicInteger inside = new AtomicInteger(), most = new AtomicInteger();

        void enter() {
            most.accumulateAndGet(inside.incrementAndGet(), Math::max);
        }

        void leave() {
            inside.decrementAndGet();
        }
    }

    private static void all(Recipes r, Recipes.Act... acts) throws Exception {
        List<Future<?>> running = new ArrayList<>();
        for (int i = 0; i < acts.length; i++) {
            running.add(r.starts(clients(r).get(i), acts[i]));
        }
        for (Future<?> f : running) {
            f.get(25, TimeUnit.SECONDS);
        }
    }

    private static Recipes.Act writing(CuratorFramework client, InterProcessLock lock, String node, Room room) {
        return () -> {
            for (int i = 0; i < ROUNDS; i++) {
                lock.acquire();
                room.enter();
                add(client, node);
                room.leave();
                lock.release();
            }
        };
    }

    private static void mutex(Recipes r) throws Exception {
        String path = r.make("lock"), node = r.path + "/number";
        r.c.create().forPath(node, "0".getBytes());
        Room room = new Room();
        cutting(r, "cut-15", () -> all(r, writing(r.a, new InterProcessMutex(r.a, path), node, room), writing(r.b, new InterProcessMutex(r.b, path), node, room),
                writing(r.c, new InterProcessMutex(r.c, path), node, room)));
        r.saw("counted %s, at once %d", Recipes.text(r.c.getData().forPath(node)), room.most.get());
        empty(r, path);
    }

    private static void empty(Recipes r, String path) throws Exception {
        r.await("nothing is left in " + path, () -> r.c.getChildren().forPath(path).isEmpty());
    }

    private static void readWrite(Recipes r) throws Exception {
        String path = r.make("lock"), node = r.path + "/number";
        r.c.create().forPath(node, "0".getBytes());
        Room writers = new Room();
        AtomicInteger readers = new AtomicInteger(), wrong = new AtomicInteger();
        InterProcessLock one = new InterProcessReadWriteLock(r.a, path).writeLock(), two = new InterProcessReadWriteLock(r.b, path).writeLock(),
                three = new InterProcessReadWriteLock(r.c, path).readLock();
        cutting(r, "cut-15", () -> all(r, writing(r.a, one, node, writers), writing(r.b, two, node, writers), () -> {
            for (int i = 0; i < ROUNDS; i++) {
                three.acquire();
                readers.incrementAndGet();
                wrong.addAndGet(writers.inside.get());
                String before = Recipes.text(r.c.getData().forPath(node));
                wrong.addAndGet(before.equals(Recipes.text(r.c.getData().forPath(node))) ? 0 : 1);
                wrong.addAndGet(writers.inside.get());
                three.release();
            }
        }));
        r.saw("written %s, at once %d; read %d times, beside a writer %d", Recipes.text(r.c.getData().forPath(node)), writers.most.get(), readers.get(),
                wrong.get());
        empty(r, path);
    }

    /** Curator 5.4 can fail here when a create is cut off, so that the connections go while nobody makes a znode. */
    private static void semaphore(Recipes r) throws Exception {
        String path = Locks.permits(r);
        InterProcessSemaphoreV2 one = new InterProcessSemaphoreV2(r.a, path, 2), two = new InterProcessSemaphoreV2(r.b, path, 2),
                three = new InterProcessSemaphoreV2(r.c, path, 2);
        Lease first = one.acquire(), second = two.acquire();
        Future<Lease> waits = r.on(r.c, () -> three.acquire());
        r.await("c queues", () -> one.getParticipantNodes().size() == 3);
        for (CuratorFramework client : clients(r)) {
            r.ask("drop", client);
        }
        r.saw("c waits %s", r.waits(waits));
        one.returnLease(first);
        Lease third = r.get(waits);
        r.ask("drop", r.b);
        r.ask("drop", r.c);
        two.returnLease(second);
        r.saw("c has one of %d", three.getParticipantNodes().size());
        three.returnLease(third);
        r.await("nobody is left", () -> three.getParticipantNodes().isEmpty());
    }

    private static void latch(Recipes r) throws Exception {
        String path = r.make("latch");
        List<LeaderLatch> latches = new ArrayList<>();
        for (CuratorFramework client : clients(r)) {
            LeaderLatch latch = new LeaderLatch(client, path);
            latch.start();
            latches.add(latch);
        }
        Callable<Integer> leaders = () -> (int) latches.stream().filter(LeaderLatch::hasLeadership).count();
        int tooMany = 0;
        for (int i = 0; i < 4; i++) {
            r.await("somebody leads", () -> leaders.call() > 0);
            for (int j = 0; j < 3; j++) {
                if (latches.get(j).hasLeadership() || j == i % 3) {
                    r.ask("drop", clients(r).get(j));
                }
                tooMany += leaders.call() > 1 ? 1 : 0;
            }
        }
        r.await("one leads, all stand in line", () -> leaders.call() == 1 && r.c.getChildren().forPath(path).size() == 3);
        r.saw("one leads of three, more than one %d times", tooMany);
        for (LeaderLatch l : latches) {
            l.close();
        }
        empty(r, path);
    }

    private static void nodes(Recipes r) throws Exception {
        String path = r.make("nodes"), group = r.make("group");
        List<PersistentNode> nodes = new ArrayList<>();
        List<GroupMember> members = new ArrayList<>();
        for (CuratorFramework client : clients(r)) {
            int n = nodes.size();
            PersistentNode node = new PersistentNode(client, CreateMode.EPHEMERAL, true, path + "/node" + n, "x".getBytes());
            node.start();
            nodes.add(node);
            GroupMember member = new GroupMember(client, group, "member" + n);
            member.start();
            members.add(member);
            r.ask("drop", client);
        }
        for (int i = 0; i < 3; i++) {
            r.ask("drop", clients(r).get(i));
            clients(r).get((i + 1) % 3).delete().quietly().forPath(group + "/member" + i);
            clients(r).get((i + 2) % 3).delete().quietly().forPath(path + "/node" + i);
        }
        for (GroupMember m : members) {
            r.await("all see all", () -> m.getCurrentMembers().size() == 3);
        }
        r.await("all znodes are there", () -> r.c.getChildren().forPath(path).size() == 3 && r.c.getChildren().forPath(group).size() == 3);
        r.saw("nodes %s, members %s", Recipes.names(r.c.getChildren().forPath(path)), Recipes.names(members.get(1).getCurrentMembers().keySet()));
        for (int i = 0; i < 3; i++) {
            nodes.get(i).close();
            members.get(i).close();
        }
        empty(r, path);
        empty(r, group);
    }

    private static void queue(Recipes r) throws Exception {
        String path = r.make("queue"), locks = r.make("locks");
        Set<String> got = new ConcurrentSkipListSet<>(), put = new TreeSet<>();
        DistributedQueue<String> in = QueueBuilder.<String>builder(r.a, null, new Queues.Words(), path).buildQueue();
        DistributedQueue<String> out = QueueBuilder.builder(r.b, new Queues.Eater() {
            @Override
            public void consumeMessage(String s) {
                got.add(s);
            }
        }, new Queues.Words(), path).lockPath(locks).buildQueue();
        in.start();
        out.start();
        for (int i = 10; i < 30; i++) {
            if (i % 4 == 3) {
                r.ask("drop", r.a);
            }
            in.put("" + i);
            put.add("" + i);
            if (i % 8 == 5) {
                // Not while it takes an item: Curator 5.4 does not know the lock of an item as its own when the answer to its create is lost.
                r.await("all came", () -> got.equals(put));
                empty(r, path);
                r.ask("drop", r.b);
            }
        }
        r.await("all came", () -> got.equals(put));
        r.saw("came %s", got);
        empty(r, path); // the lock of an item that it looked for too late may be left until it closes
        out.close();
        in.close();
    }

    /**
     * The CuratorCache has a client of its own. Of two kinds of watch of one znode ZooKeeper 3.8 keeps for a connection the one that was set last
     * (ZOOKEEPER-4466, mended in 3.9.0). On the client of the others, each would have to fear for its news of new znodes: the CuratorCache's watch
     * is persistent and recursive, theirs are good for one event, and which one comes last after a cut is a race of Curator's threads.
     *
     * It is cut when it has what there is. It asks for children only where a parent's cversion has changed, which a znode that was deleted and made again
     * can have in common with the old one: if it knows that a child is gone and a cut keeps from it that the parent is, it never finds the new child
     * (CuratorCacheImpl.checkChildrenChanged, in Curator 5.9 too; CURATOR-391 was the same in the PathChildrenCache).
     */
    private static void caches(Recipes r) throws Exception {
        String dir = r.make("dir");
        CuratorCache cache = CuratorCache.build(r.c, dir);
        TreeCache tree = TreeCache.newBuilder(r.a, dir).build();
        PathChildrenCache children = new PathChildrenCache(r.a, dir, true);
        NodeCache node = new NodeCache(r.a, dir + "/n5");
        cache.start();
        tree.start();
        children.start();
        node.start();
        Callable<String> there = () -> Caches.data(r, dir, Integer.MAX_VALUE), below = () -> Caches.data(r, dir, 1);
        Callable<String> inCache = () -> Caches.data(r, cache.stream().collect(Collectors.toList()));
        Recipes.Act allHaveIt = () -> {
            r.awaitSame("the cache has it", there, inCache);
            r.awaitSame("the tree has it", there, () -> Caches.data(r, Caches.all(tree)));
            r.awaitSame("the list of children has it", below, () -> "{" + r.below(dir) + "=, " + Caches.data(r, children.getCurrentData()).substring(1));
            r.awaitSame("the znode has it", () -> r.c.checkExists().forPath(dir + "/n5") == null ? "none" : Recipes.text(r.c.getData().forPath(dir + "/n5")),
                    () -> node.getCurrentData() == null ? "none" : Recipes.text(node.getCurrentData().getData()));
        };
        for (int i = 0; i < 36; i++) {
            if (i % 7 == 3) {
                r.ask("drop", r.a);
            }
            if (i % 10 == 6) { // soon after b is back: the cache misses what b writes until it is cut again
                r.awaitSame("the cache has it before the cut", there, inCache);
                r.ask("drop", r.c);
            }
            if (i % 9 == 5) {
                r.ask("drop", r.b);
            }
            String at = dir + "/n" + i % 6;
            r.b.create().orSetData().forPath(at, ("" + i).getBytes());
            r.b.create().orSetData().forPath(at + "/below", ("" + i).getBytes());
            if (i >= 32) { // after the last cut, one change at a time: only its event tells them, no other and no look around after a cut
                allHaveIt.run();
            }
            if (i % 4 == 3) {
                r.b.delete().quietly().deletingChildrenIfNeeded().forPath(dir + "/n" + (i - 2) % 6);
            }
        }
        r.saw("there is %s", there.call());
        allHaveIt.run();
        cache.close();
        tree.close();
        children.close();
        node.close();
    }
}
