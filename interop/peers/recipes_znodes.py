"""Queues, numbers, watches and znodes; see recipes.py."""

@step
def simple_queue(r):
    path = r.path + "/queue"
    put, get = r.a.Queue(path), r.b.Queue(path)
    r.saw("empty %s, %d", get.get(), len(get))
    for value, priority in ((b"late", 200), (b"one", 100), (b"two", 100), (b"first", 5)):
        put.put(value, priority)
    r.saw("%d: %s", len(get), r.names(path))
    r.saw("%s", [get.get() for _ in range(5)])


@step
def locking_queue(r):
    path = r.path + "/queue"
    put, one, two = [c.LockingQueue(path) for c in r.clients]
    r.saw("empty %s", one.get(0.1))
    put.put(b"one")
    put.put_all([b"two", b"three"], priority=50)
    r.saw("%d: %s", len(put), r.names(path + "/entries"))
    r.saw("b %s, holds %s", one.get(), one.holds_lock())
    r.saw("c %s", two.get())
    r.saw("taken %s", r.names(path + "/taken"))
    r.saw("b consumes %s, again %s", one.consume(), one.consume())
    r.saw("c releases %s", two.release())
    r.saw("b %s", one.get())
    r.expire(r.b)
    r.saw("after the end of b's session c %s", two.get(10))
    two.consume()
    r.saw("c %s", two.get(10))
    two.consume()
    waits = r.start(two.get, 10)
    r.saw("c waits %s", r.waits(waits))
    put.put(b"four")
    r.saw("c %s", waits.result(10))
    two.consume()


@step
def counter(r):
    path = r.path + "/number"

    def add(client):
        number = client.Counter(path)
        for _ in range(10):
            number += 1

    for f in [r.start(add, c) for c in r.clients]:
        f.result(20)
    number = r.a.Counter(path)
    r.saw("after 30 %d", number.value)
    r.saw("by an old version %s", result(r.b.set, path, b"0", version=0))
    number -= 3
    r.saw("%d -> %d", number.pre_value, number.post_value)
    part = r.b.Counter(r.path + "/part", default=1.5)
    part += 2.25
    r.saw("%s", part.value)
    same = r.c.Counter(r.path + "/curator", support_curator=True)
    same += 258
    r.saw("as Curator %s", struct.unpack(">i", r.a.get(r.path + "/curator")[0])[0])


# Watches.


@step
def children_watch(r):
    path, heard = r.make("dir"), []
    r.a.ChildrenWatch(path, lambda names, event: heard.append((sorted(names), event and event.type)), send_event=True)
    for act, name in ((r.b.create, "x"), (r.b.create, "y"), (r.b.delete, "x")):
        n = len(heard)
        act(path + "/" + name)
        r.wait_for("the change is heard", lambda: len(heard) > n)
    r.saw("heard %s", heard)

    def changes():
        r.b.delete(path + "/y")
        r.b.create(path + "/z")

    r.meanwhile(r.a, changes)
    r.wait_for("it has what there is", lambda: heard[-1][0] == ["z"])
    r.expire(r.a)
    r.b.create(path + "/last")
    r.wait_for("it has what there is", lambda: heard[-1][0] == ["last", "z"])
    r.saw("in the end %s", heard[-1][0])
    for name in ("z", "last"):
        r.b.delete(path + "/" + name)
    r.wait_for("it has what there is", lambda: heard[-1][0] == [])
    r.b.delete(path)


@step
def data_watch(r):
    path, heard = r.path + "/node", []
    r.a.DataWatch(path, lambda data, stat, event: heard.append((data, stat and stat.version, event and event.type)))
    for act in (
        lambda: r.b.create(path, b"1"), lambda: r.b.set(path, b"2"), lambda: r.b.delete(path), lambda: r.b.create(path, b"3"),
    ):
        n = len(heard)
        act()
        r.wait_for("the change is heard", lambda: len(heard) > n)
    r.saw("heard %s", heard)
    r.meanwhile(r.a, lambda: r.b.set(path, b"4"))
    r.wait_for("it has it", lambda: heard[-1][0] == b"4")
    r.meanwhile(r.a, lambda: r.b.delete(path))
    r.wait_for("it has it", lambda: heard[-1][0] is None)
    r.meanwhile(r.a, lambda: r.b.create(path, b"5"))
    r.wait_for("it has it", lambda: heard[-1][0] == b"5")
    r.expire(r.a)
    r.b.set(path, b"6")
    r.wait_for("it has it", lambda: heard[-1][0] == b"6")
    r.saw("in the end %s", heard[-1][:2])


@step
def tree_cache(r):
    path, heard = r.make("dir"), []
    cache = TreeCache(r.a, path)
    cache.listen(lambda e: heard.append((e.event_type, e.event_data and r.below(e.event_data.path), e.event_data and e.event_data.data)))
    cache.start()
    r.wait_for("it is filled", lambda: (TreeEvent.INITIALIZED, None, None) in heard)
    for act in (
        lambda: r.b.create(path + "/x", b"1"), lambda: r.b.create(path + "/x/deep", b"2"), lambda: r.b.set(path + "/x/deep", b"3"),
        lambda: r.b.delete(path + "/x/deep"), lambda: r.b.set(path + "/x", b"4"),
    ):
        n = len(heard)
        act()
        r.wait_for("the change is heard", lambda: len(heard) > n)
    r.saw("heard %s", heard)

    def changes():
        r.b.set(path + "/x", b"5")
        r.b.create(path + "/y", b"6")
        r.b.create(path + "/y/z", b"7")

    r.meanwhile(r.a, changes)
    r.wait_for("it has what there is", lambda: cached(r, cache, path) == tree(r, path))
    r.saw("after a cut %s", tree(r, path))
    r.expire(r.a)
    r.b.delete(path + "/y", recursive=True)
    r.b.set(path, b"8")
    r.wait_for("it has what there is", lambda: cached(r, cache, path) == tree(r, path))
    r.saw("in the next session %s", tree(r, path))
    cache.close()


def tree(r, path):
    found = {r.below(path): r.c.get(path)[0]}
    for name in r.c.get_children(path):
        found.update(tree(r, path + "/" + name))
    return dict(sorted(found.items()))


def cached(r, cache, path):
    data = cache.get_data(path)
    if data is None:
        return {}
    found = {r.below(path): data.data}
    for name in cache.get_children(path, frozenset()):
        found.update(cached(r, cache, path + "/" + name))
    return dict(sorted(found.items()))


@step
def watches(r):
    path, heard = r.make("dir"), []

    def watch(event):
        if event.type != EventType.NONE:
            heard.append(event.type + " " + r.below(event.path))

    r.a.exists(path + "/x", watch)
    r.a.get_children(path, watch)
    r.a.get(path, watch)
    r.b.create(path + "/x", b"1")
    r.b.set(path, b"2")
    r.b.create(path + "/y")
    r.wait_for("all is heard", lambda: len(heard) == 3)
    r.a.get(path + "/x", watch)
    r.a.get_children(path + "/x", watch)
    r.a.get_children(path, watch)
    r.b.delete(path + "/x")
    r.wait_for("all is heard", lambda: len(heard) >= 5)
    r.a.exists(path + "/mark", watch)
    r.b.create(path + "/mark")
    r.wait_for("the mark", lambda: heard[-1].endswith("mark"))
    r.saw("heard %s", heard)


# Znodes.

CreateAs = namedtuple("CreateAs", "type path data flags ttl")


def create_as(client, kind, path, flags, ttl=None):
    """Creates a container (19) or a znode with a time to live (21), of which this version of kazoo does not know."""

    class Request(CreateAs):
        def serialize(self):
            b = bytearray(write_string(self.path) + write_buffer(self.data) + int_struct.pack(len(OPEN_ACL_UNSAFE)))
            for acl in OPEN_ACL_UNSAFE:
                b.extend(int_struct.pack(acl.perms) + write_string(acl.id.scheme) + write_string(acl.id.id))
            b.extend(int_struct.pack(self.flags))
            if self.ttl is not None:
                b.extend(long_struct.pack(self.ttl))
            return b

        @classmethod
        def deserialize(cls, buf, offset):
            return read_string(buf, offset)[0]

    answer = client.handler.async_result()
    client._call(Request(kind, path, b"", flags, ttl), answer)
    return answer.get(timeout=10)


@step
def create(r):
    path = r.path + "/dir"
    r.saw("ensured %s, again %s", r.below(r.a.ensure_path(path + "/deep/er")), r.a.ensure_path(path + "/deep/er"))
    r.saw("%s", [r.below(r.a.create(path + "/n-", b"", sequence=True)) for _ in range(2)])
    r.saw("%s", r.below(r.a.create(path + "/e-", b"", ephemeral=True, sequence=True)))
    r.saw("%s", r.below(r.a.create(path + "/made/path", b"x", ephemeral=True, makepath=True)))
    r.saw("again %s, below an ephemeral %s", result(r.a.create, path + "/made/path"), result(r.a.create, path + "/made/path/x"))
    none = path + "/none"
    r.saw("no parent %s, no node %s %s %s", result(r.a.create, none + "/x"), result(r.a.get, none), result(r.a.get_children, none), r.a.exists(none))
    r.saw("version %s %s", result(r.a.set, path, b"", version=3), result(r.a.delete, path + "/made/path", version=3))
    r.saw("not empty %s", result(r.a.delete, path))
    names, stat = r.b.get_children(path, include_data=True)
    r.saw("%s, cversion %d", sorted(names), stat.cversion)
    r.saw("ttl %s", r.below(create_as(r.a, 21, path + "/ttl", 5, 300)))
    r.saw("ttl %s", r.below(create_as(r.a, 21, path + "/ttl-", 6, 600000)))
    r.saw("bad ttl %s %s", result(create_as, r.a, 21, path + "/bad", 5, 0), result(create_as, r.a, 21, path + "/bad", 5, 1 << 41))
    r.saw("container %s", r.below(create_as(r.a, 19, path + "/box", 4)))
    r.wait_for("the ttl passes", lambda: not r.b.exists(path + "/ttl"))
    r.a.create(path + "/box/x", ephemeral=True)
    r.saw("names %s", r.names(path))
    r.expire(r.a)
    r.wait_for("the container goes", lambda: not r.b.exists(path + "/box"))
    r.saw("after the end of its session %s", r.names(path))
    r.saw("bytes %s", r.b.set(path, b"\x00" * 100000).dataLength)
    r.b.delete(path + "/deep", recursive=True)


@step
def transaction(r):
    path = r.make("dir")
    t = r.a.transaction()
    t.create(path + "/x", b"1")
    t.create(path + "/x/y", b"2", ephemeral=True)
    t.create(path + "/n-", b"", sequence=True)
    t.create(path + "/n-", b"", ephemeral=True, sequence=True)
    t.set_data(path + "/x", b"3")
    t.check(path + "/x", 1)
    t.delete(path + "/x/y")
    r.saw("%s", [getattr(v, "version", v) if not isinstance(v, str) else r.below(v) for v in t.commit()])
    for bad in (
        lambda t: t.check(path + "/x", 9), lambda t: t.create(path + "/none/x"), lambda t: t.create(path + "/x"), lambda t: t.delete(path),
        lambda t: t.set_data(path + "/none", b""),
    ):
        t = r.a.transaction()
        t.create(path + "/new", b"")
        bad(t)
        t.delete(path + "/x")
        r.saw("fails %s", [type(v).__name__ for v in t.commit()])
    r.saw("names %s", r.names(path))
    r.saw("nothing in it %s", r.a.transaction().commit())
    for name in r.c.get_children(path):
        r.c.delete(path + "/" + name)


@step
def acl(r):
    path = r.make("dir")
    own, digest = path + "/own", [make_digest_acl("user", "secret", all=True)]
    r.a.create(own, b"x", acl=digest)
    r.saw("without %s", result(r.a.get, own))
    r.a.add_auth("digest", "user:secret")
    r.saw("with %s", result(lambda: r.a.get(own)[0]))
    r.saw("others: %s %s %s %s", result(r.b.get, own), result(r.b.set, own, b""), result(r.b.get_children, own), result(r.b.create, own + "/x"))
    r.saw("its acl %s", result(r.b.get_acls, own))
    r.saw("acl %s", r.a.get_acls(own)[0])
    read = digest + [make_digest_acl("other", "word", read=True)]
    r.saw("aversion %d", r.a.set_acls(own, read).aversion)
    r.saw("by version %s", result(r.a.set_acls, own, read, version=0))
    r.b.add_auth("digest", "other:word")
    r.saw("others: %s, write %s, acl %s", r.b.get(own)[0], result(r.b.set, own, b""), r.b.get_acls(own)[0])
    r.meanwhile(r.b, lambda: None)
    r.saw("on the next connection %s", r.b.get(own)[0])
    r.expire(r.b)
    r.saw("in the next session %s", r.b.get(own)[0])
    r.saw("of nobody %s", result(r.a.set_acls, own, [make_acl("sasl", "x", all=True)]))
    r.a.delete(own)
