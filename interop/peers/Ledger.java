import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;

/**
 * A file with one line of a fixed length, "number czxid znode", which nothing but a lock protects. A line is read and written in one call each, so that
 * whoever is killed meanwhile leaves a whole one.
 */
final class Ledger {
    private static final int SIZE = 256;

    private static String read(RandomAccessFile file) throws Exception {
        byte[] line = new byte[SIZE];
        file.seek(0);
        file.readFully(line);
        return new String(line, StandardCharsets.US_ASCII).trim();
    }

    /** Adds one, after a while, and returns what was there and the own czxid. */
    static String count(String name, long czxid, String node, long ms) throws Exception {
        try (RandomAccessFile file = new RandomAccessFile(name, "rw")) {
            String before = read(file);
            Thread.sleep(ms);
            long n = Long.parseLong(before.split(" ")[0]) + 1;
            file.seek(0);
            file.write(String.format("%-" + (SIZE - 1) + "s\n", n + " " + czxid + " " + node).getBytes(StandardCharsets.US_ASCII));
            return czxid + " " + before;
        }
    }

    /** Reads twice, with a while between, and returns both and the own czxid. */
    static String look(String name, long czxid, long ms) throws Exception {
        try (RandomAccessFile file = new RandomAccessFile(name, "r")) {
            String before = read(file);
            Thread.sleep(ms);
            return czxid + " " + before + " " + read(file);
        }
    }
}
