import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedIdQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/** Numbers and queues. */
final class Queues {
    static void addTo(Map<String, Recipes.Step> steps) {
        steps.put("shared-count", Queues::sharedCount);
        steps.put("atomic-long", Queues::atomicLong);
        steps.put("simple-queue", Queues::simpleQueue);
        steps.put("queue", Queues::queue);
        steps.put("safe-queue", Queues::safeQueue);
        steps.put("priority-queue", Queues::priorityQueue);
        steps.put("delay-queue", Queues::delayQueue);
        steps.put("id-queue", Queues::idQueue);
    }

    private static void sharedCount(Recipes r) throws Exception {
        String path = r.path + "/count";
        SharedCount one = new SharedCount(r.a, path, 7), two = new SharedCount(r.b, path, 8);
        List<Integer> heard = new CopyOnWriteArrayList<>();
        one.start();
        two.start();
        two.addListener(new SharedCountListener() {
            @Override
            public void countHasChanged(SharedCountReader count, int n) {
                heard.add(n);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {
            }
        });
        r.saw("it begins with %d %d", one.getCount(), two.getCount());
        for (int i = 1; i <= 3; i++) {
            int n = i;
            one.setCount(10 * n);
            r.await("b hears", () -> heard.size() == n && two.getCount() == 10 * n);
        }
        r.saw("b heard %s", heard);
        VersionedValue<Integer> old = two.getVersionedValue();
        r.saw("version %d", old.getVersion());
        r.saw("b sets %s", two.trySetCount(old, 40));
        r.saw("b sets again by the old version %s", two.trySetCount(old, 50));
        r.await("a sees", () -> one.getCount() == 40);
        r.expire(r.a);
        two.setCount(60);
        r.await("a sees after its session's end", () -> one.getCount() == 60);
        one.close();
        two.close();
    }

    private static void atomicLong(Recipes r) throws Exception {
        String path = r.path + "/number";
        DistributedAtomicLong one = new DistributedAtomicLong(r.a, path, new RetryNTimes(500, 3));
        DistributedAtomicLong two = new DistributedAtomicLong(r.b, path, new RetryNTimes(500, 3));
        DistributedAtomicLong three = new DistributedAtomicLong(r.c, path, new RetryNTimes(500, 3));
        r.saw("it is made %s, again %s", one.initialize(5L), two.initialize(6L));
        Future<?> a = r.starts(r.a, () -> add(one, 10)), b = r.starts(r.b, () -> add(two, 10)), c = r.starts(r.c, () -> add(three, 10));
        r.get(a);
        r.get(b);
        r.get(c);
        r.saw("after 30 it is %d", one.get().postValue());
        AtomicValue<Long> swapped = one.compareAndSet(35L, 100L), not = two.compareAndSet(35L, 200L);
        r.saw("swaps %s %s", swapped.succeeded(), not.succeeded());
        r.saw("by an old version %s", Nodes.result(() -> r.c.setData().withVersion(0).forPath(path, new byte[8])));
        r.saw("a takes 1: %d -> %d", one.get().postValue(), one.subtract(1L).postValue());
        two.forceSet(3L);
        r.saw("b forces %d", one.get().postValue());
    }

    private static void add(DistributedAtomicLong number, int times) throws Exception {
        for (int i = 0; i < times; i++) {
            if (!number.increment().succeeded()) {
                throw new IllegalStateException("not added");
            }
        }
    }

    private static void simpleQueue(Recipes r) throws Exception {
        String path = r.make("queue");
        SimpleDistributedQueue in = new SimpleDistributedQueue(r.a, path), out = new SimpleDistributedQueue(r.b, path);
        r.saw("empty: peek %s, poll %s", Recipes.text(out.peek()), Recipes.text(out.poll()));
        try {
            out.element();
        } catch (NoSuchElementException e) {
            r.saw("no element");
        }
        for (String item : new String[] {"one", "two", "three"}) {
            in.offer(item.getBytes());
        }
        r.saw("znodes %s", Recipes.names(r.c.getChildren().forPath(path)));
        r.saw("peek %s, poll %s, remove %s, take %s", Recipes.text(out.peek()), Recipes.text(out.poll()), Recipes.text(out.remove()),
                Recipes.text(out.take()));
        r.saw("poll in time %s", Recipes.text(out.poll(100, TimeUnit.MILLISECONDS)));
        Future<byte[]> takes = r.on(r.b, out::take);
        r.saw("take waits %s", r.waits(takes));
        in.offer("four".getBytes());
        r.saw("takes %s", Recipes.text(r.get(takes)));
    }

    static final class Words implements QueueSerializer<String> {
        @Override
        public byte[] serialize(String s) {
            return s.getBytes();
        }

        @Override
        public String deserialize(byte[] b) {
            return new String(b);
        }
    }

    /** Notes what it gets; the first "bad" is refused. */
    static class Eater implements QueueConsumer<String> {
        final List<String> eaten = new CopyOnWriteArrayList<>();
        private boolean refused;

        @Override
        public void consumeMessage(String s) throws Exception {
            if (s.equals("bad") && !refused) {
                refused = true;
                eaten.add("refused");
                throw new Exception("refused");
            }
            eaten.add(s);
        }

        @Override
        public void stateChanged(CuratorFramework client, ConnectionState state) {
        }

        void awaits(Recipes r, int n) throws Exception {
            r.await("it gets " + n, () -> eaten.size() >= n);
            r.saw("got %s", eaten);
        }
    }

    private static void queue(Recipes r) throws Exception {
        String path = r.make("queue");
        Eater eater = new Eater();
        DistributedQueue<String> in = QueueBuilder.<String>builder(r.a, null, new Words(), path).buildQueue();
        in.start();
        in.put("one");
        in.put("two");
        in.put("three");
        in.flushPuts(10, TimeUnit.SECONDS);
        r.saw("znodes %s", Recipes.names(r.c.getChildren().forPath(path)));
        DistributedQueue<String> out = QueueBuilder.builder(r.b, eater, new Words(), path).buildQueue();
        out.start();
        eater.awaits(r, 3);
        in.put("four");
        eater.awaits(r, 4);
        out.close();
        in.close();
    }

    private static void safeQueue(Recipes r) throws Exception {
        String path = r.make("queue"), locks = r.make("locks");
        Eater eater = new Eater();
        DistributedQueue<String> in = QueueBuilder.<String>builder(r.a, null, new Words(), path).buildQueue();
        in.start();
        in.put("bad");
        in.flushPuts(10, TimeUnit.SECONDS);
        DistributedQueue<String> out = QueueBuilder.builder(r.b, eater, new Words(), path).lockPath(locks).buildQueue();
        out.start();
        eater.awaits(r, 2);
        in.put("good");
        eater.awaits(r, 3);
        r.await("nothing is left", () -> r.c.getChildren().forPath(path).isEmpty() && r.c.getChildren().forPath(locks).isEmpty());
        out.close();
        in.close();
    }

    private static void priorityQueue(Recipes r) throws Exception {
        String path = r.make("queue");
        Eater eater = new Eater();
        DistributedPriorityQueue<String> in = QueueBuilder.<String>builder(r.a, null, new Words(), path).buildPriorityQueue(0);
        in.start();
        in.put("late", 9);
        in.put("first", -3);
        in.put("second", 2);
        in.flushPuts(10, TimeUnit.SECONDS);
        r.saw("znodes %s", Recipes.names(r.c.getChildren().forPath(path)));
        DistributedPriorityQueue<String> out = QueueBuilder.builder(r.b, eater, new Words(), path).buildPriorityQueue(0);
        out.start();
        eater.awaits(r, 3);
        out.close();
        in.close();
    }

    private static void delayQueue(Recipes r) throws Exception {
        String path = r.make("queue");
        Eater eater = new Eater();
        DistributedDelayQueue<String> in = QueueBuilder.<String>builder(r.a, null, new Words(), path).buildDelayQueue();
        DistributedDelayQueue<String> out = QueueBuilder.builder(r.b, eater, new Words(), path).buildDelayQueue();
        in.start();
        long now = System.currentTimeMillis();
        in.put("later", now + 900);
        in.put("soon", now + 300);
        in.flushPuts(10, TimeUnit.SECONDS);
        out.start();
        eater.awaits(r, 2);
        out.close();
        in.close();
        r.saw("too early %s", System.currentTimeMillis() < now + 900);
    }

    private static void idQueue(Recipes r) throws Exception {
        String path = r.make("queue");
        Eater eater = new Eater();
        DistributedIdQueue<String> in = QueueBuilder.<String>builder(r.a, null, new Words(), path).buildIdQueue();
        in.start();
        in.put("one", "id-1");
        in.put("two", "id-2");
        in.flushPuts(10, TimeUnit.SECONDS);
        List<String> removed = new ArrayList<>();
        removed.add("" + in.remove("id-1"));
        removed.add("" + in.remove("id-3"));
        r.saw("removed %s", removed);
        DistributedIdQueue<String> out = QueueBuilder.builder(r.b, eater, new Words(), path).buildIdQueue();
        out.start();
        eater.awaits(r, 1);
        out.close();
        in.close();
    }
}
