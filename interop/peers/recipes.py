"""kazoo's own recipes among themselves, driven by lines; see doc.go.

A run has three clients, each on an address of its own, so that who drives it can do something to one of them. Its steps say what they saw, in words
that are the same on every server that does the same.
"""

import concurrent.futures
import datetime
import os
import queue
import re
import struct
import sys
import threading
import time
import traceback
from collections import namedtuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.serialization import int_struct, long_struct, read_string, write_buffer, write_string
from kazoo.protocol.states import EventType
from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

printing = threading.Lock()
STEPS = {}
RUNS = {}


def say(line):
    with printing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def step(f):
    STEPS[f.__name__.replace("_", "-")] = f
    return f


class Run(object):
    def __init__(self, name, timeout_ms, servers):
        self.name = name
        self.told = queue.Queue()
        self.pool = concurrent.futures.ThreadPoolExecutor(16)
        retry = dict(max_tries=-1, delay=0.05, max_delay=0.2)
        self.clients = [
            KazooClient(hosts=s, timeout=int(timeout_ms) / 1000.0, command_retry=dict(retry), connection_retry=dict(retry)) for s in servers
        ]
        for c in self.clients:
            c.start(timeout=20)
        self.a, self.b, self.c = self.clients

    def close(self):
        for c in self.clients:
            c.stop()
            c.close()

    def run(self, name, path):
        self.path = path
        self.seen = []
        STEPS[name](self)
        return "; ".join(self.seen)

    def saw(self, fmt, *args):
        self.seen.append(fmt % args)

    def start(self, f, *args, **kwargs):
        return self.pool.submit(f, *args, **kwargs)

    def waits(self, future):
        """Whether it still waits after a moment."""
        try:
            future.result(0.1)
            return False
        except concurrent.futures.TimeoutError:
            return True

    def wait_for(self, what, condition):
        deadline = time.time() + 20
        while not condition():
            if time.time() > deadline:
                raise Exception("never: " + what)
            time.sleep(0.005)

    def ask(self, what, client):
        """Lets who drives the run do something to a client."""
        say("event %s %s %d" % (self.name, what, self.clients.index(client)))
        self.told.get(timeout=15)

    def expire(self, client):
        old = client.client_id[0]
        self.ask("expire", client)
        self.wait_for("the next session", lambda: client.connected and client.client_id[0] not in (0, old))

    def meanwhile(self, client, f):
        """Runs f while a client is not connected."""
        self.ask("refuse", client)
        self.wait_for("it is cut off", lambda: not client.connected)
        f()
        self.ask("accept", client)
        self.wait_for("it is back", lambda: client.connected)

    def cutting(self, *acts):
        self.ask("cut-15", self.a)
        try:
            for f in [self.start(act) for act in acts]:
                f.result(25)
        finally:
            self.ask("calm", self.a)

    def make(self, name, data=b""):
        path = self.path + "/" + name
        self.c.create(path, data)
        return path

    def names(self, path):
        return sorted(re.sub("[0-9a-f]{32}", "uuid", n) for n in self.c.get_children(path))

    def below(self, path):
        return path[len(self.path) + 1:]


def result(f, *args, **kwargs):
    try:
        return str(f(*args, **kwargs))
    except KazooException as e:
        return type(e).__name__


def perform(name, verb, args):
    if verb == "steps":
        return " ".join(STEPS)
    if verb == "open":
        RUNS[name] = Run(name, args[0], args[1:])
    elif verb == "run":
        return RUNS[name].run(*args)
    elif verb == "told":
        RUNS[name].told.put("")
    elif verb == "close":
        RUNS.pop(name).close()
    else:
        raise Exception(verb)
    return ""


def answer(ident, name, verb, args):
    try:
        say((ident + " ok " + perform(name, verb, args)).rstrip())
    except BaseException:
        say((ident + " error " + traceback.format_exc()).replace("\n", " "))


def main():
    for line in sys.stdin:
        ident, name, verb, *args = line.split()
        threading.Thread(target=answer, args=(ident, name, verb, args), daemon=True).start()
    os._exit(0)  # who drove it is gone; the sessions end by themselves
