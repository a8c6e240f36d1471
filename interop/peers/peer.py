"""Clients of kazoo, driven by lines; see doc.go.

Each peer has a KazooClient, and so a session, of its own, and one thread on which its requests run in order. Only close jumps that queue, for it has
to end a wait.
"""

import os
import queue
import sys
import threading
import time

import kazoo
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, ReadLock, WriteLock

# What each kind of lock has to take notice of besides kazoo's own names. Without it kazoo sees kazoo's znodes only.
KINDS = {
    "lock": (Lock, ("__rlock__", "lock-", "__WRIT__", "__READ__")),
    "wlock": (WriteLock, ("lock-", "__WRIT__", "__READ__")),
    "rlock": (ReadLock, ("lock-", "__WRIT__")),
    "plain-lock": (Lock, ()),
    # These are on Curator's znodes; see curator_names.py, which comes first.
    "curator-lock": (CuratorLock, ()),
    "curator-wlock": (CuratorWriteLock, ()),
    "curator-rlock": (CuratorReadLock, ()),
}

LINE = 256  # of a ledger; see Ledger.java

printing = threading.Lock()


def say(line):
    with printing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def answer(ident, work, *args):
    try:
        say((ident + " ok " + work(*args)).rstrip())
    except BaseException as e:
        say((ident + " error " + repr(e)).replace("\n", " "))


def read(fd):
    return os.pread(fd, LINE, 0).decode().strip()


class Peer(object):
    def __init__(self, name):
        self.name = name
        self.requests = queue.Queue()
        self.locks = {}
        self.states = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            ident, verb, args = self.requests.get()
            answer(ident, self.perform, verb, args)

    def perform(self, verb, args):
        return self.acquire(verb, *args) if verb in KINDS else getattr(self, verb)(*args)

    def open(self, servers, timeout_ms):
        seconds = int(timeout_ms) / 1000.0
        self.client = KazooClient(hosts=servers, timeout=seconds)
        self.client.add_listener(self.states.append)
        self.client.start(timeout=seconds)
        return str(self.client.client_id[0])

    def close(self):
        for lock in list(self.locks.values()):
            lock.cancel()
        self.client.stop()
        self.client.close()
        return ""

    def barrier(self, path):
        self.client.Barrier(path).create()
        return ""

    def gate(self, path):
        self.client.Barrier(path).wait()
        return ""

    def acquire(self, kind, path):
        cls, others = KINDS[kind]
        lock = cls(self.client, path, self.name, extra_lock_patterns=others)
        self.locks[kind, path] = lock
        lock.acquire()
        return path + "/" + lock.node

    def tries(self, kind, path, ms):
        """Waits no longer than that."""
        cls, others = KINDS[kind]
        lock = cls(self.client, path, self.name, extra_lock_patterns=others)
        try:
            granted = lock.acquire(timeout=int(ms) / 1000.0)
        except LockTimeout:
            granted = False
        if granted:
            self.locks[kind, path] = lock
        return "granted" if granted else "late"

    def holds(self, kind, path):
        """What the lock itself says, without a request, and what the client has said of its connection so far."""
        return ("yes " if self.locks[kind, path].is_acquired else "no ") + ",".join(self.states)

    def drain(self, path, waiters):
        """So many threads take the mutex and give it back, each with a lock object of its own."""
        cls, others = KINDS["lock"]
        failures = []

        def cycle():
            try:
                lock = cls(self.client, path, extra_lock_patterns=others)
                lock.acquire()
                lock.release()
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=cycle, daemon=True) for _ in range(int(waiters))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if failures:
            raise failures[0]
        return ""

    def release(self, kind, path):
        if kind == "barrier":
            self.client.Barrier(path).remove()
            return ""
        self.locks.pop((kind, path)).release()
        return ""

    def contenders(self, kind, path):
        cls, others = KINDS[kind]
        return " ".join(cls(self.client, path, extra_lock_patterns=others).contenders())

    def count(self, name, node, ms):
        """See Ledger.java."""
        czxid = self.client.exists(node).czxid
        fd = os.open(name, os.O_RDWR)
        try:
            before = read(fd)
            time.sleep(int(ms) / 1000.0)
            line = "%d %d %s" % (int(before.split()[0]) + 1, czxid, node)
            os.pwrite(fd, (line.ljust(LINE - 1) + "\n").encode(), 0)
            return "%d %s" % (czxid, before)
        finally:
            os.close(fd)

    def look(self, name, node, ms):
        czxid = self.client.exists(node).czxid
        fd = os.open(name, os.O_RDONLY)
        try:
            before = read(fd)
            time.sleep(int(ms) / 1000.0)
            return "%d %s %s" % (czxid, before, read(fd))
        finally:
            os.close(fd)

    def version(self):
        return kazoo.__version__


def main():
    peers = {}
    for line in sys.stdin:
        ident, name, verb, *args = line.split()
        if verb == "close":
            threading.Thread(target=answer, args=(ident, peers.pop(name).close), daemon=True).start()
            continue
        if verb == "drain":  # on threads of its own: the peer's goes on
            threading.Thread(target=answer, args=(ident, peers[name].drain, *args), daemon=True).start()
            continue
        if verb == "open":
            peers[name] = Peer(name)
        if name in peers:
            peers[name].requests.put((ident, verb, args))
        else:
            say(ident + " error no such peer")
    os._exit(0)  # who drove it is gone; the sessions end by themselves
