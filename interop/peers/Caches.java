import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.cache.TreeCacheEvent;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;

/** Caches and watches, also across a connection that was cut while others wrote. */
@SuppressWarnings("deprecation")
final class Caches {
    static void addTo(Map<String, Recipes.Step> steps) {
        steps.put("curator-cache", Caches::curatorCache);
        steps.put("tree-cache", Caches::treeCache);
        steps.put("path-children-cache", Caches::pathChildrenCache);
        steps.put("node-cache", Caches::nodeCache);
        steps.put("watches", Caches::watches);
        steps.put("watches-that-end", Caches::watchesThatEnd);
        steps.put("watches-of-one-path", Caches::watchesOfOnePath);
        steps.put("watches-after-a-cut", Caches::watchesAfterACut);
    }

    /** Writes one thing after another, each when the one before was seen. */
    private static void changes(Recipes r, CuratorFramework w, String dir, Callable<Integer> heard) throws Exception {
        Recipes.Act[] acts = {
            () -> w.create().forPath(dir + "/x", "1".getBytes()),
            () -> w.create().forPath(dir + "/x/deep", "2".getBytes()),
            () -> w.setData().forPath(dir + "/x/deep", "3".getBytes()),
            () -> w.setData().forPath(dir + "/x", "4".getBytes()),
            () -> w.create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(dir + "/x/n-", "5".getBytes()),
            () -> w.delete().forPath(dir + "/x/deep"),
        };
        for (Recipes.Act act : acts) {
            int before = heard.call();
            act.run();
            r.await("the change is heard", () -> heard.call() > before);
        }
    }

    /** Writes while a client is not connected. */
    private static void meanwhile(Recipes r, CuratorFramework client, Recipes.Act act) throws Exception {
        r.ask("refuse", client);
        r.await("it is cut off", () -> !client.getZookeeperClient().isConnected());
        act.run();
        r.ask("accept", client);
        r.await("it is back", () -> client.getZookeeperClient().isConnected());
    }

    private static void others(Recipes r, String dir) throws Exception {
        r.b.setData().forPath(dir + "/x", "6".getBytes());
        r.b.create().forPath(dir + "/y", "7".getBytes());
        r.b.create().forPath(dir + "/y/z", "8".getBytes());
        r.b.setData().forPath(dir, "9".getBytes());
        r.b.delete().forPath(dir + "/w");
    }

    /** What is there, as a cache should have it. */
    private static String tree(Recipes r, String dir) throws Exception {
        Map<String, String> m = new TreeMap<>();
        collect(r, dir, m, Integer.MAX_VALUE);
        return m.toString();
    }

    private static void collect(Recipes r, String node, Map<String, String> m, int depth) throws Exception {
        m.put(r.below(node), Recipes.text(r.c.getData().forPath(node)) + " v" + r.c.checkExists().forPath(node).getVersion());
        for (String child : depth == 0 ? new ArrayList<String>() : r.c.getChildren().forPath(node)) {
            collect(r, node + "/" + child, m, depth - 1);
        }
    }

    /** The data of what is there, down to so many levels. */
    static String data(Recipes r, String dir, int depth) throws Exception {
        Map<String, String> m = new TreeMap<>();
        collect(r, dir, m, depth);
        return withoutVersions(m);
    }

    static String data(Recipes r, Collection<ChildData> all) {
        return r.contents(all).replaceAll(" v[0-9]+", "");
    }

    private static String withoutVersions(Map<String, String> m) {
        return m.toString().replaceAll(" v[0-9]+", "");
    }

    private static void curatorCache(Recipes r) throws Exception {
        String dir = r.make("dir");
        r.c.create().forPath(dir + "/w", "0".getBytes());
        List<String> heard = new CopyOnWriteArrayList<>();
        CuratorCache cache = CuratorCache.build(r.a, dir);
        cache.listenable().addListener(CuratorCacheListener.builder().forAll((type, old, now) -> heard.add(
                type + " " + r.below((now == null ? old : now).getPath()) + " " + (old == null ? "-" : Recipes.text(old.getData())) + " > "
                        + (now == null ? "-" : Recipes.text(now.getData())))).forInitialized(() -> heard.add("initialized")).build());
        cache.start();
        r.await("it is filled", () -> heard.contains("initialized"));
        changes(r, r.b, dir, heard::size);
        r.saw("heard %s", heard);
        r.saw("has %s", r.contents(cache.stream().collect(Collectors.toList())));
        meanwhile(r, r.a, () -> others(r, dir));
        Callable<Boolean> right = () -> r.contents(cache.stream().collect(Collectors.toList())).equals(tree(r, dir));
        r.await("it has what there is", right);
        r.saw("after a cut %s", tree(r, dir));
        r.b.setData().forPath(dir + "/y/z", "10".getBytes());
        r.await("it has what there is", right);
        r.expire(r.a);
        r.b.delete().deletingChildrenIfNeeded().forPath(dir + "/y");
        r.b.create().forPath(dir + "/last", "11".getBytes());
        r.await("it has what there is", right);
        r.saw("in the next session %s", tree(r, dir));
        cache.close();
    }

    private static void treeCache(Recipes r) throws Exception {
        String dir = r.make("dir");
        r.c.create().forPath(dir + "/w", "0".getBytes());
        List<String> heard = new CopyOnWriteArrayList<>();
        TreeCache cache = TreeCache.newBuilder(r.a, dir).build();
        cache.getListenable().addListener((client, e) -> {
            if (e.getData() != null) {
                heard.add(e.getType() + " " + r.below(e.getData().getPath()) + " " + Recipes.text(e.getData().getData()));
            } else if (e.getType() == TreeCacheEvent.Type.INITIALIZED) {
                heard.add("initialized");
            }
        });
        cache.start();
        r.await("it is filled", () -> heard.contains("initialized"));
        changes(r, r.b, dir, heard::size);
        r.saw("heard %s", heard);
        meanwhile(r, r.a, () -> others(r, dir));
        Callable<Boolean> right = () -> r.contents(all(cache)).equals(tree(r, dir));
        r.await("it has what there is", right);
        r.saw("after a cut %s", tree(r, dir));
        r.b.setData().forPath(dir + "/y/z", "10".getBytes());
        r.await("it has what there is", right);
        r.expire(r.a);
        r.b.delete().deletingChildrenIfNeeded().forPath(dir + "/y");
        r.b.create().forPath(dir + "/last", "11".getBytes());
        r.await("it has what there is", right);
        r.saw("in the next session %s", tree(r, dir));
        cache.close();
    }

    static Collection<ChildData> all(TreeCache cache) {
        List<ChildData> all = new ArrayList<>();
        try {
            cache.iterator().forEachRemaining(all::add);
        } catch (NoSuchElementException e) { // it changes meanwhile, which the iterator is not made for
            all.clear();
        }
        return all;
    }

    private static void pathChildrenCache(Recipes r) throws Exception {
        String dir = r.make("dir");
        r.c.create().forPath(dir + "/w", "0".getBytes());
        List<String> heard = new CopyOnWriteArrayList<>();
        PathChildrenCache cache = new PathChildrenCache(r.a, dir, true);
        cache.getListenable().addListener((client, e) -> {
            if (e.getData() != null) {
                heard.add(e.getType() + " " + r.below(e.getData().getPath()) + " " + Recipes.text(e.getData().getData()));
            }
        });
        cache.start(PathChildrenCache.StartMode.BUILD_INITIAL_CACHE);
        String[] values = {"1", "2", "3"};
        for (String v : values) {
            int before = heard.size();
            r.b.create().orSetData().forPath(dir + "/x", v.getBytes());
            r.await("the change is heard", () -> heard.size() > before);
        }
        int before = heard.size();
        r.b.create().forPath(dir + "/e", "4".getBytes());
        r.await("the change is heard", () -> heard.size() > before);
        r.b.delete().forPath(dir + "/e");
        r.await("the change is heard", () -> heard.size() > before + 1);
        r.saw("heard %s", heard);
        meanwhile(r, r.a, () -> others(r, dir));
        Callable<Boolean> right = () -> {
            Map<String, String> m = new TreeMap<>();
            collect(r, dir, m, 1);
            m.remove(r.below(dir));
            return r.contents(cache.getCurrentData()).equals(m.toString());
        };
        r.await("it has what there is", right);
        r.saw("after a cut %s", r.contents(cache.getCurrentData()));
        r.b.setData().forPath(dir + "/y", "10".getBytes());
        r.await("it has what there is", right);
        r.expire(r.a);
        r.b.setData().forPath(dir + "/y", "11".getBytes());
        r.b.create().forPath(dir + "/last", "12".getBytes());
        r.await("it has what there is", right);
        r.saw("in the next session %s", r.contents(cache.getCurrentData()));
        cache.close();
    }

    private static void nodeCache(Recipes r) throws Exception {
        String dir = r.make("dir"), node = dir + "/node";
        List<String> heard = new CopyOnWriteArrayList<>();
        NodeCache cache = new NodeCache(r.a, node);
        Callable<String> now = () -> cache.getCurrentData() == null ? "none" : Recipes.text(cache.getCurrentData().getData());
        cache.getListenable().addListener(() -> heard.add(now.call()));
        cache.start(true);
        r.saw("begins with %s", now.call());
        Recipes.Act[] acts = {
            () -> r.b.create().forPath(node, "1".getBytes()), () -> r.b.setData().forPath(node, "2".getBytes()), () -> r.b.delete().forPath(node),
            () -> r.b.create().forPath(node, "3".getBytes()),
        };
        for (Recipes.Act act : acts) {
            int before = heard.size();
            act.run();
            r.await("the change is heard", () -> heard.size() > before);
        }
        r.saw("heard %s", heard);
        meanwhile(r, r.a, () -> r.b.setData().forPath(node, "4".getBytes()));
        r.await("it has it", () -> now.call().equals("4"));
        meanwhile(r, r.a, () -> r.b.delete().forPath(node));
        r.await("it has it", () -> now.call().equals("none"));
        meanwhile(r, r.a, () -> r.b.create().forPath(node, "5".getBytes()));
        r.await("it has it", () -> now.call().equals("5"));
        r.expire(r.a);
        r.b.setData().forPath(node, "6".getBytes());
        r.await("it has it", () -> now.call().equals("6"));
        r.saw("after all that %s", now.call());
        cache.close();
    }

    /** Notes the events that the server sends. */
    private static final class Ears implements Watcher {
        final List<String> heard = new CopyOnWriteArrayList<>();
        private final Recipes r;

        Ears(Recipes r) {
            this.r = r;
        }

        @Override
        public void process(org.apache.zookeeper.WatchedEvent e) {
            if (e.getType() != Event.EventType.None) {
                heard.add(e.getType() + " " + r.below(e.getPath()));
            }
        }

        /** All that came before an event of a znode that nothing else happens to. */
        List<String> all() throws Exception {
            int mark = heard.size();
            r.a.checkExists().usingWatcher(this).forPath(r.path + "/mark");
            if (r.c.checkExists().forPath(r.path + "/mark") == null) {
                r.c.create().forPath(r.path + "/mark", new byte[0]);
            } else {
                r.c.delete().forPath(r.path + "/mark");
            }
            r.await("the mark", () -> heard.stream().skip(mark).anyMatch(e -> e.endsWith(" mark")));
            List<String> all = heard.stream().filter(e -> !e.endsWith(" mark")).collect(Collectors.toList());
            heard.clear();
            return all;
        }
    }

    private static void watches(Recipes r) throws Exception {
        String dir = r.make("dir");
        Ears plain = new Ears(r), deep = new Ears(r);
        r.a.watchers().add().withMode(AddWatchMode.PERSISTENT).usingWatcher(plain).forPath(dir + "/x");
        r.a.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE).usingWatcher(deep).forPath(dir);
        r.b.create().forPath(dir + "/x");
        r.b.create().forPath(dir + "/x/deep");
        r.b.setData().forPath(dir + "/x/deep", "1".getBytes());
        r.b.setData().forPath(dir + "/x", "2".getBytes());
        r.b.transaction().forOperations(r.b.transactionOp().create().forPath(dir + "/x/two"), r.b.transactionOp().setData().forPath(dir + "/x", "3".getBytes()),
                r.b.transactionOp().delete().forPath(dir + "/x/two"));
        r.b.setData().forPath(dir, "4".getBytes());
        r.b.delete().forPath(dir + "/x/deep");
        r.b.delete().forPath(dir + "/x");
        r.saw("persistent %s", plain.all());
        r.saw("recursive %s", deep.all());
        r.a.watchers().remove(deep).ofType(Watcher.WatcherType.Any).forPath(dir);
        r.await("the watcher is told", () -> deep.heard.size() == 1);
        r.saw("removed %s", deep.heard);
        deep.heard.clear();
        r.b.create().forPath(dir + "/x");
        r.saw("persistent %s", plain.all());
        r.saw("recursive %s", deep.all());
        try {
            r.a.watchers().remove(deep).ofType(Watcher.WatcherType.Any).forPath(dir);
        } catch (KeeperException e) {
            r.saw("removed again %s", e.code());
        }
        r.b.delete().forPath(dir + "/x");
        r.saw("persistent %s", plain.all());
    }

    private static void watchesThatEnd(Recipes r) throws Exception {
        String data = r.make("data"), children = r.make("children"), none = r.path + "/none", taken = r.make("taken");
        Ears once = new Ears(r), plain = new Ears(r);
        r.a.getData().usingWatcher(once).forPath(data);
        r.a.getChildren().usingWatcher(once).forPath(children);
        r.a.checkExists().usingWatcher(once).forPath(none);
        for (int i = 0; i < 2; i++) {
            r.b.setData().forPath(data, "x".getBytes());
            r.b.create().forPath(children + "/x");
            r.b.delete().forPath(children + "/x");
            r.b.create().forPath(none);
            r.b.delete().forPath(none);
        }
        r.saw("once %s", once.all());
        r.a.watchers().add().withMode(AddWatchMode.PERSISTENT).usingWatcher(plain).forPath(taken);
        r.b.setData().forPath(taken, "x".getBytes());
        r.saw("persistent %s", plain.all());
        r.a.watchers().removeAll().forPath(taken);
        r.await("the watcher is told", () -> plain.heard.size() == 1);
        plain.heard.clear();
        r.b.setData().forPath(taken, "y".getBytes());
        r.b.create().forPath(taken + "/x");
        r.saw("taken back %s", plain.all());
    }

    /** Watches of several kinds of one client on one znode: ZooKeeper 3.8 lets the last one decide for all of them how long they last. */
    private static void watchesOfOnePath(Recipes r) throws Exception {
        String dir = r.make("dir");
        Ears one = new Ears(r), two = new Ears(r);
        r.a.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE).usingWatcher(one).forPath(dir);
        r.a.getData().usingWatcher(two).forPath(dir);
        for (int i = 0; i < 3; i++) {
            r.b.setData().forPath(dir, "x".getBytes());
        }
        r.b.create().forPath(dir + "/x");
        r.b.delete().forPath(dir + "/x");
        r.saw("recursive, then data: %s %s", one.all(), two.all());
        r.a.getChildren().usingWatcher(two).forPath(dir);
        r.b.create().forPath(dir + "/x");
        r.b.delete().forPath(dir + "/x");
        r.b.setData().forPath(dir, "y".getBytes());
        r.saw("then children: %s %s", one.all(), two.all());
        String other = r.make("other");
        r.a.getData().usingWatcher(two).forPath(other);
        r.a.watchers().add().withMode(AddWatchMode.PERSISTENT).usingWatcher(one).forPath(other);
        for (int i = 0; i < 3; i++) {
            r.b.setData().forPath(other, "x".getBytes());
        }
        r.b.create().forPath(other + "/x");
        r.b.delete().forPath(other + "/x");
        r.saw("data, then persistent: %s %s", one.all(), two.all());
    }

    private static void watchesAfterACut(Recipes r) throws Exception {
        String dir = r.make("dir");
        for (String name : new String[] {"data", "deleted", "children", "same", "plain", "deep"}) {
            r.c.create().forPath(dir + "/" + name, new byte[0]);
        }
        Ears once = new Ears(r), plain = new Ears(r), deep = new Ears(r);
        for (String name : new String[] {"data", "deleted", "same"}) {
            r.a.getData().usingWatcher(once).forPath(dir + "/" + name);
        }
        r.a.getChildren().usingWatcher(once).forPath(dir + "/children");
        r.a.getChildren().usingWatcher(once).forPath(dir + "/same");
        for (String name : new String[] {"created", "none", "short"}) {
            r.a.checkExists().usingWatcher(once).forPath(dir + "/" + name);
        }
        Recipes.Act persistent = () -> {
            r.a.watchers().add().withMode(AddWatchMode.PERSISTENT).usingWatcher(plain).forPath(dir + "/plain");
            r.a.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE).usingWatcher(deep).forPath(dir + "/deep");
        };
        Recipes.Act changes = () -> {
            r.b.setData().forPath(dir + "/data", "1".getBytes());
            r.b.delete().forPath(dir + "/deleted");
            r.b.create().forPath(dir + "/children/x");
            r.b.create().forPath(dir + "/created");
            r.b.create().forPath(dir + "/short");
            r.b.delete().forPath(dir + "/short");
            r.b.create().forPath(dir + "/plain/x");
            r.b.create().forPath(dir + "/deep/x");
        };
        meanwhile(r, r.a, changes); // without persistent watches the client asks with the older request
        r.saw("once %s", sorted(once.all()));
        persistent.run();
        for (String name : new String[] {"created", "children/x", "plain/x", "deep/x"}) {
            r.b.delete().forPath(dir + "/" + name);
        }
        r.saw("persistent %s %s", plain.all(), deep.all());
        r.a.getData().usingWatcher(once).forPath(dir + "/data");
        r.a.getChildren().usingWatcher(once).forPath(dir + "/children");
        r.a.checkExists().usingWatcher(once).forPath(dir + "/created");
        r.b.create().forPath(dir + "/deleted");
        r.a.getData().usingWatcher(once).forPath(dir + "/deleted");
        meanwhile(r, r.a, changes);
        r.saw("once %s, persistent %s %s", sorted(once.all()), plain.all(), deep.all());
        r.b.setData().forPath(dir + "/plain", "2".getBytes());
        r.b.setData().forPath(dir + "/deep/x", "3".getBytes());
        r.b.setData().forPath(dir + "/same", "4".getBytes());
        r.b.create().forPath(dir + "/same/x");
        r.b.create().forPath(dir + "/none");
        r.saw("then once %s, persistent %s %s", sorted(once.all()), plain.all(), deep.all());
    }

    private static List<String> sorted(List<String> all) {
        all.sort(null);
        return all;
    }
}
