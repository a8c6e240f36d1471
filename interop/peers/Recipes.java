import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.retry.RetryNTimes;

/**
 * Curator's own recipes among themselves, driven by lines; see doc.go. A run has three clients, each on an address of its own, so that who drives it can do
 * something to one of them. Its steps say what they saw, in words that are the same on every server that does the same.
 */
final class Recipes {
    interface Step {
        void run(Recipes r) throws Exception;
    }

    private static final Map<String, Step> STEPS = new LinkedHashMap<>();
    private static final Map<String, Recipes> RUNS = new ConcurrentHashMap<>();

    static {
        Locks.addTo(STEPS);
        Leaders.addTo(STEPS);
        Queues.addTo(STEPS);
        Nodes.addTo(STEPS);
        Caches.addTo(STEPS);
        Cuts.addTo(STEPS);
    }

    final CuratorFramework a, b, c; // the clients, which who drives it knows as 0, 1 and 2
    String path; // of this step
    private final String name;
    private final ExecutorService[] threads = {thread(), thread(), thread()};
    private final List<String> seen = new ArrayList<>();
    private final SynchronousQueue<String> told = new SynchronousQueue<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split(" ");
            new Thread(() -> answer(words)).start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(String[] words) {
        try {
            say((words[0] + " ok " + perform(words[1], words[2], Arrays.asList(words).subList(3, words.length))).trim());
        } catch (Throwable e) {
            StringBuilder b = new StringBuilder(e.toString());
            for (StackTraceElement at : e.getStackTrace()) {
                b.append(" at ").append(at);
            }
            say(words[0] + " error " + b.toString().replace('\n', ' '));
        }
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private static String perform(String name, String verb, List<String> words) throws Exception {
        switch (verb) {
            case "steps":
                return String.join(" ", STEPS.keySet());
            case "open":
                RUNS.put(name, new Recipes(name, Integer.parseInt(words.get(0)), words.subList(1, 4)));
                return "";
            case "run":
                return RUNS.get(name).step(words.get(0), words.get(1));
            case "told": // what it asked for is done
                RUNS.get(name).told.put("");
                return "";
            case "close":
                RUNS.remove(name).close();
                return "";
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    private Recipes(String name, int timeoutMs, List<String> servers) throws Exception {
        this.name = name;
        a = client(servers.get(0), timeoutMs);
        b = client(servers.get(1), timeoutMs);
        c = client(servers.get(2), timeoutMs);
        for (CuratorFramework client : Arrays.asList(a, b, c)) {
            if (!client.blockUntilConnected(timeoutMs, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("not connected in " + timeoutMs + " ms");
            }
        }
    }

    private static CuratorFramework client(String server, int timeoutMs) {
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(server).sessionTimeoutMs(timeoutMs).connectionTimeoutMs(timeoutMs)
                .retryPolicy(new RetryNTimes(200, 50)).defaultData(new byte[0]).build(); // by default a znode's data is the machine's address
        client.start();
        return client;
    }

    private static ExecutorService thread() {
        return Executors.newSingleThreadExecutor();
    }

    private void close() {
        for (ExecutorService t : threads) {
            t.shutdownNow();
        }
        for (CuratorFramework client : Arrays.asList(a, b, c)) {
            client.close();
        }
    }

    private String step(String step, String path) throws Exception {
        this.path = path;
        seen.clear();
        STEPS.get(step).run(this);
        synchronized (seen) {
            return String.join("; ", seen);
        }
    }

    /** Notes what the step saw. */
    void saw(String format, Object... args) {
        synchronized (seen) {
            seen.add(String.format(format, args));
        }
    }

    /** Runs work on the one thread of a client, to which its locks belong. */
    <T> Future<T> on(CuratorFramework client, Callable<T> work) {
        return threads[number(client)].submit(work);
    }

    <T> T call(CuratorFramework client, Callable<T> work) throws Exception {
        return get(on(client, work));
    }

    interface Act {
        void run() throws Exception;
    }

    Future<?> starts(CuratorFramework client, Act act) {
        return on(client, () -> {
            act.run();
            return null;
        });
    }

    void does(CuratorFramework client, Act act) throws Exception {
        get(starts(client, act));
    }

    <T> T get(Future<T> f) throws Exception {
        return f.get(15, TimeUnit.SECONDS);
    }

    /** Whether it still waits after a moment. */
    boolean waits(Future<?> f) throws Exception {
        try {
            f.get(100, TimeUnit.MILLISECONDS);
            return false;
        } catch (TimeoutException e) {
            return true;
        }
    }

    void await(String what, Callable<Boolean> condition) throws Exception {
        for (long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20); !condition.call();) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("never: " + what);
            }
            Thread.sleep(5);
        }
    }

    /** Waits until a recipe has what there is. */
    void awaitSame(String what, Callable<String> there, Callable<String> has) throws Exception {
        try {
            await(what, () -> has.call().equals(there.call()));
        } catch (IllegalStateException e) {
            throw new IllegalStateException(e.getMessage() + ": it has " + has.call() + ", there is " + there.call());
        }
    }

    /** Lets who drives the run do something to a client: expire, refuse or accept. */
    void ask(String what, CuratorFramework client) throws Exception {
        say("event " + name + " " + what + " " + number(client));
        if (told.poll(15, TimeUnit.SECONDS) == null) {
            throw new IllegalStateException("nobody did: " + what);
        }
    }

    /** Ends the session of a client, and waits for its next. */
    void expire(CuratorFramework client) throws Exception {
        long old = session(client);
        ask("expire", client);
        await("the next session", () -> client.getZookeeperClient().isConnected() && session(client) != old && session(client) != 0);
    }

    long session(CuratorFramework client) throws Exception {
        return client.getZookeeperClient().getZooKeeper().getSessionId();
    }

    private int number(CuratorFramework client) {
        return client == a ? 0 : client == b ? 1 : 2;
    }

    /** Makes a znode below the step's path. */
    String make(String name) throws Exception {
        return c.create().creatingParentsIfNeeded().forPath(path + "/" + name, new byte[0]);
    }

    /** Names without what is random in them, in order. */
    static String names(Collection<String> nodes) {
        List<String> all = new ArrayList<>();
        for (String n : nodes) {
            all.add(name(n));
        }
        all.sort(null);
        return all.toString();
    }

    static String name(String node) {
        return node.substring(node.lastIndexOf('/') + 1).replaceAll("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "uuid");
    }

    /** What a cache has, by path below the step's. */
    String contents(Collection<ChildData> all) {
        Map<String, String> m = new TreeMap<>();
        for (ChildData d : all) {
            m.put(below(d.getPath()), text(d.getData()) + " v" + d.getStat().getVersion());
        }
        return m.toString();
    }

    String below(String node) {
        return node.equals(path) ? "." : node.substring(path.length() + 1);
    }

    static String text(byte[] data) {
        return data == null ? "null" : new String(data);
    }
}
