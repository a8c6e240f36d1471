"""What survives a connection that is cut now and then: all that is seen is what must be right in the end. See recipes.py."""

ROUNDS = 6


class Room(object):
    def __init__(self):
        self.lock, self.inside, self.most, self.rounds = threading.Lock(), 0, 0, 0

    def __enter__(self):
        with self.lock:
            self.inside += 1
            self.rounds += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *exc):
        with self.lock:
            self.inside -= 1


def add(client, path):
    """Adds one, once, whatever becomes of the answer; nobody else writes at the same time."""
    data, stat = client.retry(client.get, path)
    data = b"%d" % (int(data) + 1)
    try:
        client.retry(client.set, path, data, stat.version)
    except KazooException:
        if client.retry(client.get, path)[0] != data:
            raise


def takes(client, lock, room, act):
    for _ in range(ROUNDS):
        lock.acquire()
        with room:
            act()
        lock.release()


def empty(r, path):
    r.wait_for("nothing is left", lambda: not r.c.get_children(path))


# Not of readers and writers: a reader of kazoo 2.8 waits for a writer behind it as well, and that one for the reader.


@step
def cut_lock(r):
    path, node, room = r.make("lock"), r.make("number", b"0"), Room()
    r.cutting(*[lambda c=c: takes(c, c.Lock(path), room, lambda: add(c, node)) for c in r.clients])
    r.saw("counted %s, at once %d", r.c.get(node)[0].decode(), room.most)
    empty(r, path)


@step
def cut_semaphore(r):
    path, room = r.make("permits", b"2"), Room()
    r.cutting(*[lambda c=c: takes(c, c.Semaphore(path, max_leases=2), room, lambda: c.retry(c.exists, path)) for c in r.clients])
    r.saw("%d rounds, too many at once %s", room.rounds, room.most > 2)
    empty(r, path)
    empty(r, path + "-__lock__")


@step
def cut_party(r):
    path = r.make("party")
    members = [c.Party(path, who) for c, who in zip(r.clients, ("one", "two", "three"))]

    def come_and_go(c, m):
        for _ in range(ROUNDS):
            m.join()
            c.retry(c.get_children, path)
            m.leave()
        m.join()

    r.cutting(*[lambda c=c, m=m: come_and_go(c, m) for c, m in zip(r.clients, members)])
    r.saw("members %s", sorted(members[0]))
    for m in members:
        m.leave()
    empty(r, path)


@step
def cut_watches(r):
    path, children, data = r.make("dir"), [], []
    r.a.ChildrenWatch(path, lambda names: children.append(sorted(names)))
    r.a.DataWatch(path + "/n5", lambda value, stat: data.append(value))
    cache = TreeCache(r.a, path)
    cache.start()

    def put(node, value):
        if r.b.retry(r.b.exists, node) is None:
            result(r.b.retry, r.b.create, node, value)
        r.b.retry(r.b.set, node, value)

    def changes():
        for i in range(36):
            node = path + "/n%d" % (i % 6)
            put(node, b"%d" % i)
            put(node + "/below", b"%d" % i)
            if i % 4 == 3:
                for gone in ("/below", ""):
                    result(r.b.retry, r.b.delete, path + "/n%d" % ((i - 2) % 6) + gone)
            r.a.retry(r.a.exists, node)

    r.cutting(changes)
    r.saw("there is %s", tree(r, path))
    r.wait_for("the children are heard", lambda: children[-1] == r.names(path))
    r.wait_for("the data is heard", lambda: data[-1] == r.c.get(path + "/n5")[0])
    r.wait_for("the tree has it", lambda: cached(r, cache, path) == tree(r, path))
    cache.close()
