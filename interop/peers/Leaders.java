import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;

/** Leaders and barriers. */
final class Leaders {
    static void addTo(Map<String, Recipes.Step> steps) {
        steps.put("latch", Leaders::latch);
        steps.put("selector", Leaders::selector);
        steps.put("barrier", Leaders::barrier);
        steps.put("double-barrier", Leaders::doubleBarrier);
    }

    private static String ids(Iterable<Participant> all) {
        List<String> ids = new ArrayList<>();
        for (Participant p : all) {
            ids.add(p.getId() + (p.isLeader() ? " leads" : ""));
        }
        return ids.toString();
    }

    private static void latch(Recipes r) throws Exception {
        String path = r.make("latch");
        LeaderLatch first = new LeaderLatch(r.a, path, "a"), second = new LeaderLatch(r.b, path, "b"), third = new LeaderLatch(r.c, path, "c");
        int queued = 0;
        for (LeaderLatch l : Arrays.asList(first, second, third)) {
            l.start();
            int n = ++queued;
            r.await("it queues", () -> first.getParticipants().size() == n);
        }
        first.await();
        r.saw("%s", ids(third.getParticipants()));
        r.saw("leads %s %s %s", first.hasLeadership(), second.hasLeadership(), third.hasLeadership());
        first.close();
        second.await();
        r.saw("a closed: %s, leader %s", ids(third.getParticipants()), third.getLeader().getId());
        r.expire(r.b);
        third.await();
        r.await("b is back", () -> third.getParticipants().size() == 2);
        r.saw("b expired: %s", ids(third.getParticipants()));
        r.saw("leads %s %s", second.hasLeadership(), third.hasLeadership());
        third.close();
        second.await();
        second.close();
        r.await("nobody is left", () -> third.getParticipants().isEmpty());
        r.c.delete().forPath(path); // how often b came back differs
    }

    /** Leads until it is told to stop. */
    private static final class Office extends LeaderSelectorListenerAdapter {
        final AtomicInteger terms = new AtomicInteger();
        volatile CountDownLatch leads = new CountDownLatch(1), over = new CountDownLatch(1);

        @Override
        public void takeLeadership(CuratorFramework client) throws Exception {
            terms.incrementAndGet();
            leads.countDown();
            over.await();
        }
    }

    private static void selector(Recipes r) throws Exception {
        String path = r.make("selector");
        Office first = new Office(), second = new Office();
        LeaderSelector one = new LeaderSelector(r.a, path, first), two = new LeaderSelector(r.b, path, second);
        one.setId("a");
        two.setId("b");
        one.start();
        first.leads.await(10, TimeUnit.SECONDS);
        two.start();
        r.await("b queues", () -> one.getParticipants().size() == 2);
        r.saw("%s, leader %s", ids(two.getParticipants()), two.getLeader().getId());
        first.over.countDown();
        r.saw("a stopped: b leads %s", second.leads.await(10, TimeUnit.SECONDS));
        r.saw("%s", ids(two.getParticipants()));
        first.leads = new CountDownLatch(1);
        first.over = new CountDownLatch(1);
        r.saw("a again %s", one.requeue());
        r.await("a queues", () -> one.getParticipants().size() == 2);
        r.saw("%s", ids(two.getParticipants()));
        two.interruptLeadership();
        r.saw("b interrupted: a leads %s", first.leads.await(10, TimeUnit.SECONDS));
        two.close();
        one.close();
        r.saw("terms %d %d", first.terms.get(), second.terms.get());
        r.await("nobody is left", () -> r.c.getChildren().forPath(path).isEmpty());
    }

    private static void barrier(Recipes r) throws Exception {
        String path = r.path + "/barrier";
        DistributedBarrier gate = new DistributedBarrier(r.a, path), two = new DistributedBarrier(r.b, path), three = new DistributedBarrier(r.c, path);
        r.saw("without it b in time %s", two.waitOnBarrier(100, TimeUnit.MILLISECONDS));
        gate.setBarrier();
        gate.setBarrier();
        r.saw("with it b in time %s", two.waitOnBarrier(100, TimeUnit.MILLISECONDS));
        Future<?> b = r.starts(r.b, two::waitOnBarrier), c = r.starts(r.c, three::waitOnBarrier);
        r.saw("they wait %s %s", r.waits(b), r.waits(c));
        gate.removeBarrier();
        r.get(b);
        r.get(c);
        r.saw("they pass");
        gate.removeBarrier();
    }

    private static void doubleBarrier(Recipes r) throws Exception {
        String path = r.make("barrier");
        for (int round = 1; round <= 2; round++) {
            // New ones for each round: a late event of the round before lets an old one enter too early.
            DistributedDoubleBarrier one = new DistributedDoubleBarrier(r.a, path, 3), two = new DistributedDoubleBarrier(r.b, path, 3),
                    three = new DistributedDoubleBarrier(r.c, path, 3);
            Future<?> a = r.starts(r.a, one::enter);
            r.await("a is in", () -> members(r, path) == 1);
            Future<?> b = r.starts(r.b, two::enter);
            r.await("b is in", () -> members(r, path) == 2);
            r.saw("two wait %s %s", r.waits(a), r.waits(b));
            r.does(r.c, three::enter);
            r.get(a);
            r.get(b);
            r.saw("three are in");
            a = r.starts(r.a, one::leave);
            b = r.starts(r.b, two::leave);
            r.saw("two wait to leave %s %s", r.waits(a), r.waits(b));
            r.does(r.c, three::leave);
            r.get(a);
            r.get(b);
            r.saw("three are out, left %s", r.c.getChildren().forPath(path));
        }
    }

    private static int members(Recipes r, String path) throws Exception {
        return r.c.getChildren().forPath(path).size();
    }
}
