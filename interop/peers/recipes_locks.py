"""Locks, leaders, barriers and parties; see recipes.py."""

@step
def lock(r):
    path = r.make("lock")
    one, two, three = r.a.Lock(path, "one"), r.b.Lock(path, "two"), r.c.Lock(path, "three")
    r.saw("a %s", one.acquire())
    r.saw("b at once %s", two.acquire(blocking=False))
    r.saw("b in time %s", result(r.b.Lock(path, "timed").acquire, timeout=0.1))
    r.saw("queue %s", r.names(path))
    b = r.start(two.acquire)
    r.wait_for("b queues", lambda: len(r.names(path)) == 2)
    c = r.start(three.acquire)
    r.wait_for("c queues", lambda: len(r.names(path)) == 3)
    r.saw("contenders %s", one.contenders())
    three.cancel()
    r.saw("c cancelled %s", result(c.result, 10))
    r.saw("b waits %s", r.waits(b))
    one.release()
    r.saw("b %s, of %s", b.result(10), two.contenders())
    two.release()
    r.saw("released again %s", two.release())


@step
def lost_lock(r):
    path = r.make("lock")
    one, two = r.a.Lock(path, "one"), r.b.Lock(path, "two")
    one.acquire()
    b = r.start(two.acquire)
    r.wait_for("b queues", lambda: len(r.names(path)) == 2)
    r.expire(r.a)
    r.saw("b %s, of %s", b.result(10), two.contenders())
    r.saw("a releases %s", one.release())
    two.release()
    r.saw("again %s", r.a.Lock(path).acquire(ephemeral=False))
    r.saw("left %s", r.names(path))


@step
def read_write(r):
    path = r.make("lock")
    one, two, three = r.a.ReadLock(path), r.b.ReadLock(path), r.c.WriteLock(path)
    r.saw("reads %s %s", one.acquire(), two.acquire())
    r.saw("write in time %s", result(r.c.WriteLock(path).acquire, timeout=0.1))
    c = r.start(three.acquire)
    r.wait_for("c queues", lambda: len(r.names(path)) == 3)
    two.release()
    r.saw("behind one reader c waits %s", r.waits(c))
    r.saw("read behind a writer in time %s", result(r.b.ReadLock(path).acquire, timeout=0.1))
    one.release()
    r.saw("c %s, of %s", c.result(10), r.names(path))
    b = r.start(two.acquire)
    r.wait_for("b queues", lambda: len(r.names(path)) == 2)
    three.release()
    r.saw("b %s", b.result(10))
    two.release()


@step
def semaphore(r):
    path = r.path + "/permits"
    one, two, three = [c.Semaphore(path, who, max_leases=2) for c, who in zip(r.clients, ("one", "two", "three"))]
    r.saw("two %s %s", one.acquire(), two.acquire())
    r.saw("third at once %s", three.acquire(blocking=False))
    r.saw("in time %s", result(r.c.Semaphore(path, max_leases=2).acquire, timeout=0.2))
    r.saw("holders %s", sorted(one.lease_holders()))
    c = r.start(three.acquire)
    r.saw("c waits %s", r.waits(c))
    one.release()
    r.saw("c %s, of %s", c.result(10), sorted(one.lease_holders()))
    try:
        r.a.Semaphore(path, max_leases=3).acquire()
    except ValueError as e:
        r.saw("another size: %s", e)
    r.expire(r.b)
    r.saw("after the end of b's session %s", sorted(one.lease_holders()))
    three.release()
    two.release()


@step
def lease(r):
    hour, holder = datetime.timedelta(hours=1), r.path + "/lease"
    r.saw("a %s", bool(r.a.NonBlockingLease(holder, hour, "one")))
    r.saw("b %s", bool(r.b.NonBlockingLease(holder, hour, "two")))
    r.saw("a again %s", bool(r.a.NonBlockingLease(holder, hour, "one")))
    r.saw("one of two %s %s %s", *[bool(c.MultiNonBlockingLease(2, r.path + "/many", hour, "%d" % i)) for i, c in enumerate(r.clients)])
    r.c.delete(holder, recursive=True)
    r.c.delete(r.path + "/many", recursive=True)


# Leaders, barriers and parties.


@step
def election(r):
    path = r.make("election")
    over, terms = threading.Event(), []

    def lead(who):
        terms.append(who)
        over.wait(10)

    one, two, three = [c.Election(path, who) for c, who in zip(r.clients, ("one", "two", "three"))]
    a = r.start(one.run, lead, "one")
    r.wait_for("a leads", lambda: terms == ["one"])
    b = r.start(two.run, lead, "two")
    r.wait_for("b queues", lambda: len(one.contenders()) == 2)
    c = r.start(three.run, lead, "three")
    r.wait_for("c queues", lambda: len(one.contenders()) == 3)
    r.saw("contenders %s", two.contenders())
    two.cancel()
    b.result(10)
    r.saw("b cancelled: %s", one.contenders())
    over.set()
    a.result(10)
    c.result(10)
    r.saw("leaders %s, left %s", terms, r.names(path))


@step
def barrier(r):
    path = r.path + "/barrier"
    one, two, three = [c.Barrier(path) for c in r.clients]
    r.saw("without it %s", two.wait(0.1))
    one.create()
    one.create()
    r.saw("with it %s", two.wait(0.1))
    b, c = r.start(two.wait), r.start(three.wait)
    r.saw("they wait %s %s", r.waits(b), r.waits(c))
    r.saw("removed %s", one.remove())
    r.saw("they pass %s %s", b.result(10), c.result(10))
    r.saw("removed again %s", one.remove())


@step
def double_barrier(r):
    path = r.make("barrier")
    one, two, three = [c.DoubleBarrier(path, 3, who) for c, who in zip(r.clients, ("one", "two", "three"))]
    for _ in range(2):
        a = r.start(one.enter)
        r.wait_for("a is in", lambda: len(r.names(path)) == 1)
        b = r.start(two.enter)
        r.wait_for("b is in", lambda: len(r.names(path)) == 2)
        r.saw("two wait %s %s", r.waits(a), r.waits(b))
        three.enter()
        a.result(10)
        b.result(10)
        r.saw("in %s, with %s", [d.participating for d in (one, two, three)], r.names(path))
        a, b = r.start(one.leave), r.start(two.leave)
        r.saw("somebody waits to leave %s", r.waits(a) or r.waits(b))
        three.leave()
        a.result(10)
        b.result(10)
        r.saw("out %s, left %s", [d.participating for d in (one, two, three)], r.names(path))


@step
def party(r):
    for kind in ("Party", "ShallowParty"):
        path = r.path + "/" + kind
        members = [getattr(c, kind)(path, who) for c, who in zip(r.clients, ("one", "two", "three"))]
        for m in members:
            m.join()
        members[0].join()
        r.saw("%s of %d: %s", kind, len(members[1]), sorted(members[2]))
        r.saw("leaves %s, again %s: %s", members[1].leave(), members[1].leave(), sorted(members[2]))
        r.expire(r.a)
        r.saw("after the end of a session %s", sorted(members[2]))
        r.saw("back %s: %s", members[0].join(), sorted(members[2]))
        for m in members:
            m.leave()


@step
def partitioner(r):
    path, items = r.make("parts"), ("w", "x", "y", "z")
    parts = [c.SetPartitioner(path, items, identifier=who, time_boundary=0.3) for c, who in zip(r.clients[:2], ("one", "two"))]
    for p in parts:
        p.wait_for_acquire(15)
    r.wait_for("both have some", lambda: all(settle(p) for p in parts) and sorted(list(parts[0]) + list(parts[1])) == list(items))
    r.saw("both %s", sorted(len(list(p)) for p in parts))
    parts[1].finish()
    r.wait_for("one has all", lambda: settle(parts[0]) and sorted(parts[0]) == list(items))
    r.saw("one %s", sorted(parts[0]))
    parts[0].finish()
    r.c.delete(path, recursive=True)


def settle(p):
    if p.release:
        p.release_set()
    elif p.allocating:
        p.wait_for_acquire(1)
    return p.acquired
