// Package zkrecipes provides the Apache Curator recipes for ZooKeeper: locks that Go services take and give back on the znodes that their Java, Python
// and older Go neighbours use.
//
// # What is not promised
//
// No lock can stop a process from acting. A holder that is paused (by its scheduler, a debugger, a suspended machine) cannot notice the end of its lease
// before it runs again. What it then does must be refused by the thing it acts on: give that thing [Lease.Token], or for writes to ZooKeeper itself
// [Lease.Check].
//
// A znode that somebody with the right to do so deletes, or a session that somebody closes, is told as soon as the server's notice arrives. That may be
// after the next one was granted.
//
// The lease clock needs a session timeout of at least three ticks of the server (tickTime, 2 s by default), better five.
//
// # The model
//
// A [Session] is one connection to an ensemble; make one per process with [Dial]. Recipes such as [Mutex] are descriptions: immutable, free to make, safe
// to share. What an acquisition returns is a [Lease]. It ends once, by Release or by loss, and says why:
//
//	lease, err := zkrecipes.NewMutex(session, "/locks/report").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer lease.Release(context.WithoutCancel(ctx))
//	err = work(lease.Context()) // ends with the lease; context.Cause says why
//
// or, with all of that done for you, [Do]. In the repository docs/concepts.md has this in pictures, and docs/cookbook.md programs for what locks are mostly
// used for.
//
// # When a lease ends
//
// A holder is told that its session is over before the server can grant the lock to anybody else. It does not wait for an event to say so: while a
// session has a lease, it is proved alive every sixth of its timeout T by a request that the leader of the ensemble has to answer, and a lease ends two
// thirds of T after the last such request was sent. Errors that a lost lease returns match [ErrLost] and are a [*LostError] with one of these reasons:
//
//	event                                what a lease does            what a waiting Lock does
//	disconnect, back in time             goes on                      keeps its place
//	disconnect, too long                 ReasonUnconfirmed            keeps its place if the session survived
//	session expired                      ReasonSessionExpired         queues again at the tail
//	znode deleted by somebody            ReasonNodeDeleted            queues again at the tail
//	the caller's ctx ends                goes on                      returns at once, leaves nothing behind
//	WithMaxHold has passed               ReasonHoldLimit              -
//	Session.Close                        ReasonSessionClosed          ErrClosed
//	no permission, bad path, too large   -                            returns at once, leaves nothing behind
//
// # A connection that you have already
//
// [NewSession] adopts a *zk.Conn that the service has and goes on having, in one of two ways. With the dialer of [TrackContact], which the service passes to
// zk.Connect, the Session sees the connection as exactly as one of Dial's:
//
//	dialer, track := zkrecipes.TrackContact(nil)
//	conn, events, err := zk.Connect(servers, timeout, zk.WithDialer(dialer))
//	session, err := zkrecipes.NewSession(conn, nil, track)
//
// Without it, as with NewSession(conn, nil, WithTimeout(negotiated)), it looks at the connection many times a second and proves the session alive by its
// own requests. What is promised of leases is the same; what Dial does beyond that is not:
//
//	                                          Dial         TrackContact    neither
//	loss told before the next grant           yes          yes             yes, if WithTimeout is what was negotiated
//	lease clock goes by                       the wire     the wire        own syncs and writes: up to one round trip shorter
//	free lock, requests to take it            1 trip       1 trip          3: create, its Stat for the token, list
//	nothing left behind                       yes          yes             yes; late creates are searched for at intervals
//	a disconnect is noticed                   at once      at once         within T/50 (10 to 200 ms), or by an unanswered request
//	a short one, nothing under way            noticed      noticed         not noticed, does no harm
//	a server that does not answer             T/3          T/3             up to 6.7 T
//	fault of the client's that -race reports  cured        cured           not cured
//	names resolved anew, back-off, jitter     yes          no              no
//	a client that is stuck is replaced        yes          no              no
//	credentials                               WithAuth     conn.AddAuth    conn.AddAuth
//	Session.Close                             closes all   deletes its own znodes, leaves the connection
//
// The service goes on reading its events, setting watches and making requests as before. Its connection outlives the Session: close the Session first.
//
// # Owners
//
// Re-entry follows the call chain, not threads. Each Lock is an owner of its own, except that a ctx that descends from [Lease.Context] enters that
// lease's path again. [ContextWithOwner] and [WithOwner] name owners explicitly: within one Session equal owners share one hold, and its znode goes with
// the last Release. Goroutines that are started with a lease's context therefore share the hold and do not exclude each other; give each
// ContextWithOwner(ctx, NewOwner()) to separate them. The same owner in another Session waits like anybody else, and a Mutex on a second Session of the
// same process waits for the first one.
//
// One owner may read under its write lease of an [RWLock] and release that one first; write under a read lease is refused with [ErrUpgrade].
//
// # Several in one lease
//
// [Semaphore.Acquire] of several permits, [NewMultiLock] and [NewMajorityLock] return composite leases. Their [Lease.Parts] have a znode each, with its own
// Token and Check; the composite has none. It ends when too few of its parts are left, which is told in the same moment, and gives back the rest. A
// composite's context enters each of its parts again.
//
// # Barriers
//
// A [Barrier] and a [DoubleBarrier] grant nothing: who has passed learns no more of what becomes of the others. A DoubleBarrier's Enter answers one question,
// whether so many members were there at one moment, and all members get the same answer, also when some give up just then.
//
// # Errors
//
// Calls return an [*Error] that names the operation, the path and the cause. A wait that ctx ended matches ctx.Err() and context.Cause(ctx), and [ErrHeld]
// with who is ahead, or [ErrNoConnection]. Bad arguments match [ErrInvalid]. What the server refused matches go-zookeeper's error, such as zk.ErrNoAuth.
//
// # Coming from Curator
//
//	CuratorFramework              Session (Dial)
//	InterProcessMutex             Mutex; re-entry by ctx or Owner instead of by thread
//	InterProcessReadWriteLock     RWLock
//	InterProcessSemaphoreV2       Semaphore; SharedCountReader: NewCountedSemaphore
//	InterProcessSemaphoreMutex    NewSemaphore(s, path, 1).Locker(1)
//	InterProcessMultiLock         NewMultiLock; NewMajorityLock across ensembles
//	LeaderLatch                   LeaderLatch; start and close: Run and the end of its ctx
//	LeaderSelector                LeaderSelector; takeLeadership: the function that Run calls; autoRequeue is the default
//	DistributedBarrier            Barrier
//	DistributedDoubleBarrier      DoubleBarrier; more than the quantity may enter here, too
//	acquire(time, unit)           Lock(ctx) with a deadline
//	acquire(0, unit)              TryLock
//	getParticipantNodes           Participants, Inspect
//	ConnectionStateListener       Lease.Context, Lease.Done, Session.States, Trace
//	makeRevocable, Revoker        Lease.Revoked, Revoke
//	usingNamespace                WithNamespace
//	Locker (try-with-resources)   Do
package zkrecipes
