"""kazoo's locks on the znodes of Java Curator's and of zkrecipes', which see them, and which they see.

A kazoo lock that only looks for the others' znodes (extra_lock_patterns) is not seen by Curator. These are. They also mend the order of a reader: that of
kazoo 2.8 waits for writers that came after it, which wait for it.
"""

from kazoo.recipe.lock import Lock
from kazoo.retry import ForceRetryError


class CuratorLock(Lock):
    """In one queue with Curator's InterProcessMutex and zkrecipes' Mutex."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-", "__WRIT__", "__READ__", "__lock__", "__rlock__"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.prefix = "_c_" + self.prefix
        self.create_path = self.path + "/" + self.prefix

    def _get_predecessor(self, node):
        children = self.client.get_children(self.path)
        if node not in children:
            raise ForceRetryError()  # as kazoo's own does
        ahead = [c for c in children if self._contenders_re.search(c) and c[-10:] < node[-10:]]
        return max(ahead, key=lambda c: c[-10:], default=None)


class CuratorWriteLock(CuratorLock):
    """In one queue with Curator's InterProcessReadWriteLock and zkrecipes' RWLock: the writing side."""

    _NODE_NAME = "-__WRIT__"


class CuratorReadLock(CuratorLock):
    """The reading side."""

    _NODE_NAME = "-__READ__"
    _EXCLUDE_NAMES = ["lock-", "__WRIT__", "__lock__"]
