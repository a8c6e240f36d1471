import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;

/** Znodes that stay or go by themselves, transactions, permissions, and what the framework makes of one call. */
final class Nodes {
    static void addTo(Map<String, Recipes.Step> steps) {
        steps.put("persistent-node", Nodes::persistentNode);
        steps.put("persistent-ttl-node", Nodes::persistentTtlNode);
        steps.put("group-member", Nodes::groupMember);
        steps.put("ttl", Nodes::ttl);
        steps.put("container", Nodes::container);
        steps.put("transaction", Nodes::transaction);
        steps.put("acl", Nodes::acl);
        steps.put("framework", Nodes::framework);
    }

    private static boolean there(Recipes r, String node) throws Exception {
        return r.c.checkExists().forPath(node) != null;
    }

    static String result(Recipes.Act act) throws Exception {
        try {
            act.run();
            return "OK";
        } catch (KeeperException e) {
            return e.code().name();
        }
    }

    private static void persistentNode(Recipes r) throws Exception {
        String path = r.make("nodes") + "/node", numbered = r.path + "/nodes/n-";
        PersistentNode node = new PersistentNode(r.a, CreateMode.EPHEMERAL, false, path, "one".getBytes());
        PersistentNode other = new PersistentNode(r.a, CreateMode.EPHEMERAL_SEQUENTIAL, true, numbered, "two".getBytes());
        node.start();
        r.saw("made %s", node.waitForInitialCreate(10, TimeUnit.SECONDS));
        other.start();
        r.saw("made %s as %s", other.waitForInitialCreate(10, TimeUnit.SECONDS), Recipes.name(other.getActualPath()));
        r.c.delete().forPath(path);
        r.await("it is made again", () -> there(r, path));
        r.saw("somebody deleted it: it is back");
        long old = r.session(r.a);
        r.expire(r.a);
        r.await("it is made again", () -> owner(r, path) == r.session(r.a) && owner(r, other.getActualPath()) == r.session(r.a));
        r.saw("its session ended: it is of the next %s, as is %s", owner(r, path) != old, Recipes.name(other.getActualPath()));
        node.setData("three".getBytes());
        r.await("it has its new data", () -> "three".equals(Recipes.text(r.c.getData().forPath(path))));
        other.close();
        r.saw("names %s", Recipes.names(r.c.getChildren().forPath(r.path + "/nodes")));
        node.close();
        r.await("it goes", () -> !there(r, path));
        r.c.delete().forPath(r.path + "/nodes"); // how often they were made differs
    }

    private static long owner(Recipes r, String node) throws Exception {
        Stat stat = r.c.checkExists().forPath(node);
        return stat == null ? 0 : stat.getEphemeralOwner();
    }

    private static void persistentTtlNode(Recipes r) throws Exception {
        String path = r.make("nodes") + "/node";
        PersistentTtlNode node = new PersistentTtlNode(r.a, path, 1500, "data".getBytes());
        node.start();
        r.saw("made %s", node.waitForInitialCreate(10, TimeUnit.SECONDS));
        String touched = path + "/" + PersistentTtlNode.DEFAULT_CHILD_NODE_NAME;
        r.await("it is touched", () -> there(r, touched));
        Thread.sleep(3500); // of two looks for what is over
        r.saw("kept %s, with %s", there(r, path), r.c.getChildren().forPath(path));
        node.close();
        r.await("it goes", () -> !there(r, path));
        r.saw("closed: it goes");
    }

    private static void groupMember(Recipes r) throws Exception {
        String path = r.make("group");
        GroupMember one = new GroupMember(r.a, path, "one", "1".getBytes()), two = new GroupMember(r.b, path, "two", "2".getBytes()),
                three = new GroupMember(r.c, path, "three", "3".getBytes());
        one.start();
        two.start();
        three.start();
        r.await("all see all", () -> one.getCurrentMembers().size() == 3 && two.getCurrentMembers().size() == 3 && three.getCurrentMembers().size() == 3);
        r.saw("%s", members(one));
        two.setThisData("22".getBytes());
        r.await("the data is seen", () -> "22".equals(Recipes.text(three.getCurrentMembers().get("two"))));
        r.saw("%s", members(three));
        two.close();
        r.await("one less", () -> one.getCurrentMembers().size() == 2 && three.getCurrentMembers().size() == 2);
        r.expire(r.a);
        r.await("it is back", () -> owner(r, path + "/one") == r.session(r.a));
        r.await("all see all", () -> one.getCurrentMembers().size() == 2 && three.getCurrentMembers().size() == 2);
        r.saw("after the end of its session %s %s", members(one), members(three));
        one.close();
        r.await("one less", () -> three.getCurrentMembers().size() == 1);
        three.close();
        r.await("nobody is left", () -> r.c.getChildren().forPath(path).isEmpty());
        r.c.delete().forPath(path); // how often one was made differs
    }

    private static String members(GroupMember member) {
        Map<String, String> m = new TreeMap<>();
        member.getCurrentMembers().forEach((id, data) -> m.put(id, Recipes.text(data)));
        return m.toString();
    }

    private static void ttl(Recipes r) throws Exception {
        String dir = r.make("ttl");
        String gone = r.a.create().withTtl(1500).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(dir + "/short", "x".getBytes());
        String numbered = r.a.create().withTtl(1500).withMode(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL).forPath(dir + "/n-", "y".getBytes());
        String parent = r.a.create().withTtl(1500).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(dir + "/parent", null);
        String longer = r.a.create().withTtl(600_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(dir + "/long", null);
        r.a.create().forPath(parent + "/child", null);
        r.saw("names %s", Recipes.names(r.b.getChildren().forPath(dir)));
        r.saw("below it %s", result(() -> r.a.create().withMode(CreateMode.EPHEMERAL).forPath(longer + "/child", null)));
        r.await("two go", () -> !there(r, gone) && !there(r, numbered));
        r.saw("names %s", Recipes.names(r.b.getChildren().forPath(dir)));
        r.a.delete().forPath(parent + "/child");
        r.await("it goes", () -> !there(r, parent));
        r.a.delete().forPath(longer + "/child");
        r.saw("names %s", Recipes.names(r.b.getChildren().forPath(dir)));
    }

    private static void container(Recipes r) throws Exception {
        String dir = r.make("dir"), lock = dir + "/deep/lock";
        InterProcessMutex mutex = new InterProcessMutex(r.a, lock);
        r.does(r.a, mutex::acquire);
        r.saw("the parents %s", Recipes.names(r.c.getChildren().forPath(dir)));
        r.does(r.a, mutex::release);
        r.await("the parents go", () -> r.c.getChildren().forPath(dir).isEmpty());
        r.saw("nobody is in it: it goes, and what it was in");
        r.a.create().withMode(CreateMode.CONTAINER).forPath(dir + "/unused", "data".getBytes());
        r.a.createContainers(dir + "/other/one");
        r.a.create().withMode(CreateMode.EPHEMERAL).forPath(dir + "/other/one/x");
        r.b.delete().guaranteed().forPath(dir + "/other/one/x");
        r.await("it goes", () -> !there(r, dir + "/other"));
        r.saw("names %s", Recipes.names(r.c.getChildren().forPath(dir)));
    }

    private static void transaction(Recipes r) throws Exception {
        String dir = r.make("dir");
        CuratorFramework a = r.a;
        List<CuratorOp> ops = new ArrayList<>();
        ops.add(a.transactionOp().create().forPath(dir + "/a", "1".getBytes()));
        ops.add(a.transactionOp().create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(dir + "/a-", "2".getBytes()));
        ops.add(a.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(dir + "/a-", "3".getBytes()));
        ops.add(a.transactionOp().create().withTtl(600_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(dir + "/t", "4".getBytes()));
        ops.add(a.transactionOp().create().withMode(CreateMode.CONTAINER).forPath(dir + "/c", "5".getBytes()));
        ops.add(a.transactionOp().create().forPath(dir + "/a/b", "6".getBytes()));
        ops.add(a.transactionOp().setData().forPath(dir + "/a", "7".getBytes()));
        ops.add(a.transactionOp().check().withVersion(1).forPath(dir + "/a"));
        ops.add(a.transactionOp().delete().forPath(dir + "/a/b"));
        StringBuilder b = new StringBuilder();
        for (CuratorTransactionResult res : a.transaction().forOperations(ops)) {
            b.append(' ').append(res.getType()).append(' ').append(res.getResultPath() == null ? "-" : r.below(res.getResultPath()));
            b.append(res.getResultStat() == null ? "" : " v" + res.getResultStat().getVersion());
        }
        r.saw("done:%s", b);
        r.saw("names %s", Recipes.names(r.b.getChildren().forPath(dir)));
        ops.clear();
        ops.add(a.transactionOp().create().forPath(dir + "/new"));
        ops.add(a.transactionOp().setData().forPath(dir + "/a", "8".getBytes()));
        ops.add(a.transactionOp().check().withVersion(7).forPath(dir + "/a"));
        ops.add(a.transactionOp().delete().forPath(dir + "/c"));
        r.saw("fails: %s", failure(r, ops));
        ops.set(2, a.transactionOp().create().forPath(dir + "/none/x"));
        r.saw("fails: %s", failure(r, ops));
        ops.set(2, a.transactionOp().create().forPath(dir + "/new"));
        r.saw("fails: %s", failure(r, ops));
        ops.set(2, a.transactionOp().delete().forPath(dir));
        r.saw("fails: %s", failure(r, ops));
        r.saw("data %s, names %s", Recipes.text(r.b.getData().forPath(dir + "/a")), Recipes.names(r.b.getChildren().forPath(dir)));
        for (String name : r.b.getChildren().forPath(dir)) {
            if (name.startsWith("a-")) {
                r.b.delete().forPath(dir + "/" + name);
            }
        }
    }

    private static String failure(Recipes r, List<CuratorOp> ops) throws Exception {
        try {
            r.a.transaction().forOperations(ops);
            return "it did not";
        } catch (KeeperException e) {
            List<String> codes = new ArrayList<>();
            for (OpResult res : e.getResults()) {
                codes.add(KeeperException.Code.get(((OpResult.ErrorResult) res).getErr()).name());
            }
            return e.code().name() + codes;
        }
    }

    private static void acl(Recipes r) throws Exception {
        String dir = r.make("dir"), own = dir + "/own";
        r.a.getZookeeperClient().getZooKeeper().addAuthInfo("digest", "user:secret".getBytes());
        r.a.create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath(own, "x".getBytes());
        r.saw("others: read %s, write %s, create %s, list %s", result(() -> r.b.getData().forPath(own)), result(() -> r.b.setData().forPath(own, null)),
                result(() -> r.b.create().forPath(own + "/x")), result(() -> r.b.getChildren().forPath(own)));
        r.saw("exists %s, acl %s, set acl %s", r.b.checkExists().forPath(own) != null, result(() -> r.b.getACL().forPath(own)),
                result(() -> r.b.setACL().withACL(ZooDefs.Ids.OPEN_ACL_UNSAFE).forPath(own)));
        r.saw("acl %s", r.a.getACL().forPath(own));
        r.saw("nobody %s", result(() -> r.b.create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath(dir + "/x")));
        List<ACL> read = new ArrayList<>(ZooDefs.Ids.READ_ACL_UNSAFE);
        read.addAll(ZooDefs.Ids.CREATOR_ALL_ACL);
        r.a.setACL().withACL(read).forPath(own);
        r.saw("acl %s", r.b.getACL().forPath(own));
        r.saw("others: read %s, write %s", result(() -> r.b.getData().forPath(own)), result(() -> r.b.setData().forPath(own, null)));
        r.b.getZookeeperClient().getZooKeeper().addAuthInfo("digest", "user:wrong".getBytes());
        r.saw("a wrong password: write %s", result(() -> r.b.setData().forPath(own, null)));
        r.b.getZookeeperClient().getZooKeeper().addAuthInfo("digest", "user:secret".getBytes());
        r.saw("the right one: write %s", result(() -> r.b.setData().forPath(own, "y".getBytes())));
        r.ask("refuse", r.b);
        r.ask("accept", r.b);
        r.saw("on the next connection too: write %s", result(() -> r.b.setData().forPath(own, "z".getBytes())));
    }

    private static void framework(Recipes r) throws Exception {
        String dir = r.make("dir");
        CuratorFramework a = r.a;
        r.saw("%s", r.below(a.create().creatingParentsIfNeeded().withMode(CreateMode.EPHEMERAL).forPath(dir + "/a/b/c", "1".getBytes())));
        r.saw("below it %s", result(() -> a.create().forPath(dir + "/a/b/c/d")));
        r.saw("%s", Recipes.name(a.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(dir + "/p-", "2".getBytes())));
        r.saw("again %s", result(() -> a.create().forPath(dir + "/a")));
        a.create().orSetData().forPath(dir + "/a", "3".getBytes());
        a.create().orSetData().forPath(dir + "/s", "4".getBytes());
        r.saw("set %s %s", Recipes.text(r.b.getData().forPath(dir + "/a")), Recipes.text(r.b.getData().forPath(dir + "/s")));
        r.saw("version %s", result(() -> a.setData().withVersion(5).forPath(dir + "/s", null)));
        r.saw("idempotent %s %s", result(() -> a.create().idempotent().forPath(dir + "/s", "4".getBytes())),
                result(() -> a.create().idempotent().forPath(dir + "/s", "5".getBytes())));
        r.saw("not there %s %s %s", result(() -> a.getData().forPath(dir + "/x")), result(() -> a.getChildren().forPath(dir + "/x")),
                result(() -> a.setData().forPath(dir + "/x")));
        r.saw("not empty %s, not there %s, %s", result(() -> a.delete().forPath(dir + "/a")), result(() -> a.delete().forPath(dir + "/x")),
                result(() -> a.delete().quietly().forPath(dir + "/x")));
        a.sync().forPath(dir);
        List<String> heard = new CopyOnWriteArrayList<>();
        a.getData().inBackground((client, event) -> heard.add(event.getType() + " " + event.getResultCode())).forPath(dir + "/none");
        a.checkExists().inBackground((client, event) -> heard.add(event.getType() + " " + event.getStat().getNumChildren())).forPath(dir + "/a");
        r.await("answers", () -> heard.size() == 2);
        r.saw("in the background %s", heard);
        r.saw("the root's %s", r.b.getChildren().forPath("/zookeeper"));
        r.saw("limits %s, %s", result(() -> a.delete().forPath("/zookeeper/config")), result(() -> a.setData().forPath("/", new byte[0])));
        CuratorFramework spaced = a.usingNamespace(dir.substring(1) + "/space");
        spaced.create().creatingParentContainersIfNeeded().forPath("/deep/node", "5".getBytes());
        r.saw("in a namespace %s", Recipes.names(r.b.getChildren().forPath(dir + "/space")));
        byte[] big = new byte[300_000];
        a.setData().compressed().forPath(dir + "/s", big);
        r.saw("compressed %d of %d", r.b.getData().decompressed().forPath(dir + "/s").length, r.b.getData().forPath(dir + "/s").length);
        a.setData().forPath(dir + "/s", big);
        r.saw("large %d", r.b.getData().forPath(dir + "/s").length);
        a.delete().deletingChildrenIfNeeded().forPath(dir + "/a");
        a.delete().guaranteed().deletingChildrenIfNeeded().forPath(dir + "/space");
        r.saw("names %s", Recipes.names(r.b.getChildren().forPath(dir)));
        for (String name : r.b.getChildren().forPath(dir)) {
            r.b.delete().forPath(dir + "/" + name);
        }
    }
}
