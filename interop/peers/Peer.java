import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/**
 * Clients of Java Curator, driven by lines; see doc.go. Each peer has a CuratorFramework, and so a session, of its own, and one thread on which its
 * requests run in order: Curator's locks belong to threads. Only close jumps that queue, for it has to end a wait.
 */
public final class Peer {
    private static final PrintStream OUT = System.out;
    private static final Map<String, Peer> PEERS = new ConcurrentHashMap<>();

    private final String name;
    private final CuratorFramework client;
    private final ExecutorService thread = Executors.newSingleThreadExecutor();
    private final Sides sides;
    private final List<ConnectionState> states = new CopyOnWriteArrayList<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split(" ");
            String id = words[0], name = words[1], verb = words[2];
            switch (verb) {
                case "open": // on a thread of its own: it waits for the server
                    new Thread(() -> answer(id, () -> {
                        Peer peer = new Peer(name, words[3], Integer.parseInt(words[4]));
                        PEERS.put(name, peer);
                        return Long.toString(peer.client.getZookeeperClient().getZooKeeper().getSessionId());
                    })).start();
                    break;
                case "drain": // on threads of its own: the peer's goes on
                    new Thread(() -> answer(id, () -> PEERS.get(name).drain(words[3], Integer.parseInt(words[4])))).start();
                    break;
                case "close":
                    new Thread(() -> answer(id, () -> {
                        PEERS.remove(name).close();
                        return "";
                    })).start();
                    break;
                default:
                    Peer peer = PEERS.get(name);
                    if (peer == null) {
                        say(id + " error no such peer");
                    } else {
                        peer.thread.execute(() -> answer(id, () -> peer.perform(verb, words)));
                    }
            }
        }
        Runtime.getRuntime().halt(0); // who drove it is gone; the sessions end by themselves
    }

    private interface Work {
        String run() throws Exception;
    }

    private static void answer(String id, Work work) {
        try {
            say((id + " ok " + work.run()).trim());
        } catch (Throwable e) {
            say(id + " error " + e.toString().replace('\n', ' '));
        }
    }

    private static void say(String line) {
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }

    private Peer(String name, String servers, int timeoutMs) throws Exception {
        this.name = name;
        client = CuratorFrameworkFactory.newClient(servers, timeoutMs, timeoutMs, new RetryNTimes(3, 100));
        client.getConnectionStateListenable().addListener((c, now) -> states.add(now));
        client.start();
        if (!client.blockUntilConnected(timeoutMs, java.util.concurrent.TimeUnit.MILLISECONDS)) {
            client.close();
            throw new IllegalStateException("not connected to " + servers + " in " + timeoutMs + " ms");
        }
        sides = new Sides(client, name);
    }

    private void close() {
        thread.shutdownNow(); // interrupts a wait
        sides.close();
        client.close();
    }

    private String perform(String verb, String[] words) throws Exception {
        switch (verb) {
            case "revocable": // of the next acquisition: a release forgets it
                ((Sides.Locking) sides.at(words[3], words[4])).lock.makeRevocable(l -> say("event " + name + " revoked"));
                return "";
            case "release":
                sides.at(words[3], words[4]).release();
                return "";
            case "tries":
                return sides.at(words[3], words[4]).tries(Long.parseLong(words[5])) ? "granted" : "late";
            case "holds":
                return (sides.at(words[3], words[4]).holds() ? "yes " : "no ") + states.stream().map(Object::toString).collect(Collectors.joining(","));
            case "participants":
                return String.join(" ", sides.at(words[3], words[4]).participants());
            case "attemptrevoke":
                Revoker.attemptRevoke(client, words[3]);
                return "";
            case "count":
                return Ledger.count(words[3], client.checkExists().forPath(words[4]).getCzxid(), words[4], Long.parseLong(words[5]));
            case "look":
                return Ledger.look(words[3], client.checkExists().forPath(words[4]).getCzxid(), Long.parseLong(words[5]));
            case "version":
                return version() + " " + System.getProperty("java.specification.version");
            default:
                return sides.at(verb, words[3]).acquire();
        }
    }

    /** So many threads take the mutex and give it back, each with a lock object of its own. */
    private String drain(String path, int waiters) throws Exception {
        List<Future<?>> all = new ArrayList<>();
        ExecutorService threads = Executors.newFixedThreadPool(waiters);
        try {
            for (int i = 0; i < waiters; i++) {
                InterProcessMutex lock = new InterProcessMutex(client, path);
                all.add(threads.submit(() -> {
                    lock.acquire();
                    lock.release();
                    return null;
                }));
            }
            for (Future<?> one : all) {
                one.get();
            }
        } finally {
            threads.shutdownNow();
        }
        return "";
    }

    private static String version() throws Exception {
        Properties pom = new Properties();
        pom.load(Revoker.class.getResourceAsStream("/META-INF/maven/org.apache.curator/curator-recipes/pom.properties"));
        return pom.getProperty("version");
    }
}
