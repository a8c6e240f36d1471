import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.lang.reflect.Method;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/** What one client takes and gives back, by the kind of recipe and the path. All runs on the thread of that client. */
final class Sides {
    /** One recipe at one path. */
    interface Side {
        /** Waits until it is granted, and returns the znode, empty where Curator does not say. */
        String acquire() throws Exception;

        /** Returns when the znode has gone. */
        void release() throws Exception;

        /** Waits no longer than that. */
        default boolean tries(long ms) throws Exception {
            throw new UnsupportedOperationException();
        }

        /** What the recipe itself says, without a request. */
        default boolean holds() {
            throw new UnsupportedOperationException();
        }

        default Collection<String> participants() throws Exception {
            throw new UnsupportedOperationException();
        }
    }

    private final CuratorFramework client;
    private final String id;
    private final Map<String, InterProcessReadWriteLock> pairs = new HashMap<>(); // the read lock must know its writer
    private final Map<String, Side> sides = new HashMap<>();

    Sides(CuratorFramework client, String id) {
        this.client = client;
        this.id = id;
    }

    Side at(String kind, String path) {
        return sides.computeIfAbsent(kind + " " + path, k -> make(kind, path));
    }

    private Side make(String kind, String path) {
        InterProcessReadWriteLock pair = pairs.computeIfAbsent(path, p -> new InterProcessReadWriteLock(client, p));
        switch (kind) {
            case "lock":
                return new Locking(new InterProcessMutex(client, path));
            case "rlock":
                return new Locking(pair.readLock());
            case "wlock":
                return new Locking(pair.writeLock());
            case "semaphore":
                return new Permits(new InterProcessSemaphoreV2(client, path, 2), path);
            case "semaphoremutex":
                return new Plain(new InterProcessSemaphoreMutex(client, path));
            case "multilock":
                return new Plain(new InterProcessMultiLock(client, Arrays.asList(path + "/a", path + "/b")));
            case "latch":
                return new Latch(path);
            case "selector":
                return new Selector(path);
            case "barrier":
                return new Gate(path, true);
            case "gate":
                return new Gate(path, false);
            case "doublebarrier":
                return new Together(path);
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** A mutex, or one side of a read/write lock. */
    static final class Locking implements Side {
        final InterProcessMutex lock;

        Locking(InterProcessMutex lock) {
            this.lock = lock;
        }

        @Override
        public String acquire() throws Exception {
            lock.acquire();
            Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath"); // Curator tells it to its own subclasses only
            path.setAccessible(true);
            return (String) path.invoke(lock);
        }

        @Override
        public void release() throws Exception {
            lock.release();
        }

        @Override
        public boolean tries(long ms) throws Exception {
            return lock.acquire(ms, TimeUnit.MILLISECONDS);
        }

        @Override
        public boolean holds() {
            return lock.isAcquiredInThisProcess();
        }

        @Override
        public Collection<String> participants() throws Exception {
            return lock.getParticipantNodes();
        }
    }

    /** A barrier: who sets it removes it, and others wait. */
    private final class Gate implements Side {
        private final DistributedBarrier barrier;
        private final boolean sets;

        Gate(String path, boolean sets) {
            barrier = new DistributedBarrier(client, path);
            this.sets = sets;
        }

        @Override
        public String acquire() throws Exception {
            if (sets) {
                barrier.setBarrier();
            } else {
                barrier.waitOnBarrier();
            }
            return "";
        }

        @Override
        public void release() throws Exception {
            if (sets) {
                barrier.removeBarrier();
            }
        }
    }

    /** One of three members of a double barrier. */
    private final class Together implements Side {
        private final String path;
        private DistributedDoubleBarrier barrier;

        Together(String path) {
            this.path = path;
        }

        @Override
        public String acquire() throws Exception {
            // One for each round: what a watch of the last round reports late would let it in alone (GH-1290).
            barrier = new DistributedDoubleBarrier(client, path, 3);
            barrier.enter();
            return "";
        }

        @Override
        public void release() throws Exception {
            barrier.leave();
        }
    }

    private static final class Plain implements Side {
        private final InterProcessLock lock;

        Plain(InterProcessLock lock) {
            this.lock = lock;
        }

        @Override
        public String acquire() throws Exception {
            lock.acquire();
            return "";
        }

        @Override
        public void release() throws Exception {
            lock.release();
        }
    }

    private static final class Permits implements Side {
        private final InterProcessSemaphoreV2 semaphore;
        private final String path;
        private final List<Lease> leases = new ArrayList<>();

        Permits(InterProcessSemaphoreV2 semaphore, String path) {
            this.semaphore = semaphore;
            this.path = path;
        }

        @Override
        public String acquire() throws Exception {
            Lease lease = semaphore.acquire();
            leases.add(lease);
            return path + "/leases/" + lease.getNodeName();
        }

        @Override
        public void release() {
            semaphore.returnLease(leases.remove(0));
        }

        @Override
        public Collection<String> participants() throws Exception {
            return semaphore.getParticipantNodes();
        }
    }

    /** The ids, with a mark at who leads. */
    private static Collection<String> ids(Collection<Participant> all) {
        List<String> ids = new ArrayList<>();
        for (Participant p : all) {
            ids.add(p.getId() + (p.isLeader() ? ",leads" : ""));
        }
        return ids;
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(Condition condition) throws Exception {
        while (!condition.holds()) { // who asked bounds the wait
            Thread.sleep(5);
        }
    }

    private final class Latch implements Side {
        private final String path;
        private LeaderLatch latch;

        Latch(String path) {
            this.path = path;
        }

        @Override
        public String acquire() throws Exception {
            latch = new LeaderLatch(client, path, id);
            latch.start();
            latch.await();
            return latch.getOurPath();
        }

        @Override
        public void release() throws Exception {
            String node = latch.getOurPath();
            latch.close(); // which deletes in the background
            await(() -> client.checkExists().forPath(node) == null);
        }

        @Override
        public Collection<String> participants() throws Exception {
            return ids(new LeaderLatch(client, path).getParticipants());
        }
    }

    private final class Selector implements Side {
        private final String path;
        private LeaderSelector selector;
        private CountDownLatch over;

        Selector(String path) {
            this.path = path;
        }

        @Override
        public String acquire() throws Exception {
            CountDownLatch leads = new CountDownLatch(1), end = new CountDownLatch(1);
            over = end;
            selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) throws Exception {
                    leads.countDown();
                    end.await();
                }
            });
            selector.setId(id);
            selector.start();
            leads.await();
            return "";
        }

        @Override
        public void release() throws Exception {
            over.countDown();
            await(() -> selector.getParticipants().stream().noneMatch(p -> p.getId().equals(id)));
            selector.close();
        }

        @Override
        public Collection<String> participants() throws Exception {
            return ids(new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) {}
            }).getParticipants());
        }
    }

    /** Interrupted waits have left nothing that has to be ended but the selectors' own threads. */
    void close() {
        for (Side side : sides.values()) {
            if (side instanceof Selector && ((Selector) side).selector != null) {
                ((Selector) side).over.countDown();
            }
        }
    }

}
