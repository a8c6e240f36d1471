import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;

/** Locks and semaphores. Their paths are made first, as plain znodes: a container may go while nobody is in it, and with it the numbers. */
final class Locks {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;

    static void addTo(Map<String, Recipes.Step> steps) {
        steps.put("mutex", Locks::mutex);
        steps.put("revoke", Locks::revoke);
        steps.put("lost-mutex", Locks::lostMutex);
        steps.put("read-write", Locks::readWrite);
        steps.put("semaphore", Locks::semaphore);
        steps.put("shared-semaphore", Locks::sharedSemaphore);
        steps.put("semaphore-mutex", Locks::semaphoreMutex);
        steps.put("multi-lock", Locks::multiLock);
    }

    private static void mutex(Recipes r) throws Exception {
        String path = r.make("lock");
        InterProcessMutex first = new InterProcessMutex(r.a, path), second = new InterProcessMutex(r.b, path), third = new InterProcessMutex(r.c, path);
        r.does(r.a, () -> {
            first.acquire();
            first.acquire();
        });
        r.saw("a owns %s", r.call(r.a, first::isOwnedByCurrentThread));
        r.saw("b in time %s", r.call(r.b, () -> second.acquire(100, MS)));
        r.saw("queue %s", Recipes.names(first.getParticipantNodes()));
        Future<?> waitsB = r.starts(r.b, second::acquire);
        r.await("b queues", () -> first.getParticipantNodes().size() == 2);
        Future<?> waitsC = r.starts(r.c, third::acquire);
        r.await("c queues", () -> first.getParticipantNodes().size() == 3);
        r.does(r.a, first::release);
        r.saw("after one release b waits %s", r.waits(waitsB));
        r.does(r.a, first::release);
        r.get(waitsB);
        r.saw("then b has it, of %s, and c waits %s", Recipes.names(second.getParticipantNodes()), r.waits(waitsC));
        r.does(r.b, second::release);
        r.get(waitsC);
        r.does(r.c, third::release);
        String error = r.call(r.a, () -> {
            try {
                first.release();
                return "none";
            } catch (IllegalMonitorStateException e) {
                return "not the owner";
            }
        });
        r.saw("a's third release: %s", error);
    }

    private static void revoke(Recipes r) throws Exception {
        String path = r.make("lock");
        InterProcessMutex lock = new InterProcessMutex(r.a, path), next = new InterProcessMutex(r.b, path);
        CountDownLatch asked = new CountDownLatch(1);
        lock.makeRevocable(l -> asked.countDown());
        r.does(r.a, lock::acquire);
        Future<?> waits = r.starts(r.b, next::acquire);
        r.await("b queues", () -> lock.getParticipantNodes().size() == 2);
        String node = lock.getParticipantNodes().iterator().next();
        Revoker.attemptRevoke(r.c, node);
        r.saw("asked %s", asked.await(10, TimeUnit.SECONDS));
        r.saw("data %s", Recipes.text(r.c.getData().forPath(node)));
        r.does(r.a, lock::release);
        r.get(waits);
        Revoker.attemptRevoke(r.c, node);
        r.saw("b has it");
        r.does(r.b, next::release);
    }

    private static void lostMutex(Recipes r) throws Exception {
        String path = r.make("lock");
        InterProcessMutex lock = new InterProcessMutex(r.a, path), next = new InterProcessMutex(r.b, path);
        r.does(r.a, lock::acquire);
        Future<?> waits = r.starts(r.b, next::acquire);
        r.await("b queues", () -> next.getParticipantNodes().size() == 2);
        r.expire(r.a);
        r.get(waits);
        r.saw("b has it, of %s", Recipes.names(next.getParticipantNodes()));
        r.does(r.a, lock::release); // of a znode that has gone
        r.saw("a in time %s", r.call(r.a, () -> lock.acquire(100, MS)));
        r.does(r.b, next::release);
        r.saw("a in time %s", r.call(r.a, () -> lock.acquire(10, TimeUnit.SECONDS)));
        r.does(r.a, lock::release);
    }

    private static void readWrite(Recipes r) throws Exception {
        String path = r.make("lock");
        InterProcessReadWriteLock first = new InterProcessReadWriteLock(r.a, path), second = new InterProcessReadWriteLock(r.b, path),
                third = new InterProcessReadWriteLock(r.c, path);
        r.saw("reads %s %s", r.call(r.a, () -> first.readLock().acquire(10, TimeUnit.SECONDS)),
                r.call(r.b, () -> second.readLock().acquire(10, TimeUnit.SECONDS)));
        r.saw("write in time %s", r.call(r.c, () -> third.writeLock().acquire(100, MS)));
        Future<?> writes = r.starts(r.c, () -> third.writeLock().acquire());
        r.await("c queues", () -> third.writeLock().getParticipantNodes().size() == 1);
        r.does(r.b, () -> second.readLock().release());
        r.saw("behind one reader c waits %s", r.waits(writes));
        r.saw("read behind a writer in time %s", r.call(r.b, () -> second.readLock().acquire(100, MS)));
        r.does(r.a, () -> first.readLock().release());
        r.get(writes);
        r.saw("writers %s", Recipes.names(third.writeLock().getParticipantNodes()));
        r.saw("c reads as well %s", r.call(r.c, () -> third.readLock().acquire(10, TimeUnit.SECONDS)));
        r.saw("a upgrades %s", r.call(r.a, () -> first.writeLock().acquire(100, MS)));
        r.does(r.c, () -> third.writeLock().release());
        r.saw("readers %s, and b %s", Recipes.names(third.readLock().getParticipantNodes()),
                r.call(r.b, () -> second.readLock().acquire(10, TimeUnit.SECONDS)));
        r.does(r.c, () -> third.readLock().release());
        r.does(r.b, () -> second.readLock().release());
    }

    /** Makes the path of a semaphore, and the containers in it. */
    static String permits(Recipes r) throws Exception {
        r.make("permits/leases");
        r.make("permits/locks");
        return r.path + "/permits";
    }

    private static void semaphore(Recipes r) throws Exception {
        String path = permits(r);
        InterProcessSemaphoreV2 first = new InterProcessSemaphoreV2(r.a, path, 2), second = new InterProcessSemaphoreV2(r.b, path, 2),
                third = new InterProcessSemaphoreV2(r.c, path, 2);
        first.setNodeData("a".getBytes());
        Lease one = r.call(r.a, first::acquire), two = r.call(r.b, second::acquire);
        r.saw("data %s", Recipes.text(one.getData()));
        r.saw("holders %s", Recipes.names(third.getParticipantNodes()));
        r.saw("c in time %s", r.call(r.c, () -> third.acquire(200, MS)));
        Future<Lease> waits = r.on(r.c, third::acquire);
        r.saw("c waits %s", r.waits(waits));
        first.returnLease(one);
        Lease three = r.get(waits);
        r.saw("c has one");
        second.returnLease(two);
        third.returnLease(three);
        Collection<Lease> both = r.call(r.a, () -> first.acquire(2));
        r.saw("a has %d", both.size());
        r.saw("both in time %s", r.call(r.b, () -> second.acquire(2, 100, MS)));
        first.returnAll(both);
        r.await("nobody is left", () -> third.getParticipantNodes().isEmpty());
    }

    private static void sharedSemaphore(Recipes r) throws Exception {
        String path = permits(r), count = r.path + "/count";
        SharedCount permits = new SharedCount(r.a, count, 1), seen = new SharedCount(r.b, count, 1);
        permits.start();
        seen.start();
        InterProcessSemaphoreV2 first = new InterProcessSemaphoreV2(r.a, path, permits), second = new InterProcessSemaphoreV2(r.b, path, seen);
        Lease one = r.call(r.a, first::acquire);
        Future<Lease> waits = r.on(r.b, second::acquire);
        r.saw("b waits %s", r.waits(waits));
        permits.setCount(2);
        second.returnLease(r.get(waits));
        r.saw("with another permit b has one");
        first.returnLease(one);
        permits.close();
        seen.close();
    }

    private static void semaphoreMutex(Recipes r) throws Exception {
        String path = permits(r);
        InterProcessSemaphoreMutex first = new InterProcessSemaphoreMutex(r.a, path), second = new InterProcessSemaphoreMutex(r.b, path);
        first.acquire();
        r.saw("b in time %s", second.acquire(100, MS));
        r.expire(r.a);
        r.saw("when a's session is over b in time %s", second.acquire(10, TimeUnit.SECONDS));
        second.release();
        r.saw("held %s %s", first.isAcquiredInThisProcess(), second.isAcquiredInThisProcess());
    }

    private static void multiLock(Recipes r) throws Exception {
        String one = r.make("one"), two = r.make("two");
        InterProcessMultiLock both = new InterProcessMultiLock(r.a, Arrays.asList(one, two)), turned = new InterProcessMultiLock(r.b, Arrays.asList(two, one));
        InterProcessMutex second = new InterProcessMutex(r.c, two);
        r.does(r.c, second::acquire);
        r.saw("a in time %s", r.call(r.a, () -> both.acquire(100, MS)));
        r.saw("left of it %s", r.c.getChildren().forPath(one));
        r.does(r.c, second::release);
        r.saw("a in time %s", r.call(r.a, () -> both.acquire(10, TimeUnit.SECONDS)));
        r.saw("b in time %s", r.call(r.b, () -> turned.acquire(100, MS)));
        r.does(r.a, both::release);
        r.saw("b in time %s", r.call(r.b, () -> turned.acquire(10, TimeUnit.SECONDS)));
        r.does(r.b, turned::release);
    }
}
