// Package zktest runs a ZooKeeper for a test, a real one or one in the process
// of the test, and breaks the network between it and its clients.
//
// Three things live here. [NewServer] makes a server in this process, for tests
// of your own code; see below. [Start] launches one server, or a quorum, on loopback, as
// child processes or in containers, and lets a test kill, pause, wipe and restart
// each of them. [NewProxy] puts a TCP proxy between one client and one server; it reads
// the length-prefixed frames of the protocol, so a fault can be tied to "the
// third create below /locks" instead of to a moment on the clock:
//
//	func TestLostReply(t *testing.T) {
//		ens := zktest.Start(t)
//		proxy := zktest.NewProxy(t, ens.Addrs()[0])
//		proxy.OnRequest(zktest.Rule{
//			Match: zktest.MatchPath(zktest.OpCreate, "/locks/"),
//			Times: 1,
//			Do:    zktest.CutAfter(), // committed, but the client cannot know
//		})
//		conn, _, err := zk.Connect([]string{proxy.Addr()}, 5*time.Second)
//		...
//	}
//
// # A server in the process of the test
//
// [NewServer] needs no Java, no Docker and no port. It speaks the protocol of
// ZooKeeper 3.8 to any client, over TCP at [Server.Addr] or over pipes from
// [Server.Dialer]. With the pipes it works within a testing/synctest bubble, where
// session timeouts pass in virtual time: an hour of a session costs about a
// tenth of a second, and the moment at which it ends is exact.
//
//	synctest.Test(t, func(t *testing.T) {
//		server := zktest.NewServer(t, zktest.TickTime(time.Second))
//		session, err := zkrecipes.Dial(t.Context(), []string{"zk:2181"}, zkrecipes.WithDialer(server.Dialer()))
//		...
//		heal := server.Partition(session.ID())
//		<-lease.Done() // two thirds of the timeout after the last proof of life
//		...
//	})
//
// Make the server and its clients within the bubble, and close the clients
// before it ends. Faults are methods: [Server.Expire], [Server.Disconnect],
// [Server.Partition], [Server.Stop], [Server.Start], [Server.Fail],
// [Server.LoseReply], [Server.Hold], [Server.Delay], [Server.SetCounter].
// [Server.Znodes], [Server.Sessions] and [Server.Counts] tell what there is.
//
// # What that server does not do
//
// It is held to ZooKeeper 3.8 (3.8.0 as Debian patches it) answer by answer: by a table of
// conversations, by walks of three clients taken at random, and through go-zookeeper's client.
// Where it differs all the same, the real one is right, and what you rely on in production
// should have run on that one too. These differences are known:
//
//   - It is one server, in memory: no follower that lags, no election, no observers, no log,
//     no snapshots. Nothing happens by itself but the end of sessions and, once a second, the
//     removal of empty containers and of znodes whose time is over, of all that are due.
//   - It has no four-letter words and no admin server, no TLS and X.509, no read-only mode, no
//     super user, and no limits but that of a frame: no quotas (what is below /zookeeper/quota
//     is like any other znode), no limit of connections or of requests under way.
//   - Reconfig is refused and SASL proves nothing, as on a server that was not told of them.
//     An operation that is none answers -6, unimplemented, and ends the connection, as there.
//   - Each request is done before the next one is looked at. A real one prepares some ahead: of
//     those that one client sends without waiting, creates at the limit of the counter may take
//     negative numbers (here only those of one multi), and those behind a setACL may be allowed
//     what it forbids. Nor does the answer to an auth overtake others here.
//   - What hashing orders there has an order here: children and the ephemerals of a session that
//     ends go by name, identities by when they were proved.
//   - An event that is due when a session expires may still reach its connection there.
//   - Later versions differ in what a table of 3.8.0 cannot show. An exists needs permission to read
//     from 3.8.4 and 3.9.2 on, and not here; an event does, here as there. From 3.9 on a watch that
//     is set once does not take the place of one that lasts, as it does here; and events have a zxid.
//   - A createTTL of no kind that has a time to live, with one below zero, ends a real
//     server for good, and an addWatch of a null path keeps it from ending the connection. Both
//     are refused.
//   - A partition does not let a pipe buffer what a client writes, so that its next
//     write may wait where TCP would take it.
//
// # What is not guaranteed
//
// The proxy sees frames, not commits: a request it forwarded may still fail on
// the server. It looks into no more of a request than the operation and its
// first path. It does not speak TLS, and four-letter words do not go through
// it. A fault set while frames are already under way hits those frames only if
// they had not left the proxy; what is certain is that once the method that
// sets a fault returns, no byte passes against it.
//
// # Where the server comes from
//
// [Find] looks for a local installation: $ZOOKEEPER_HOME first, then the jar
// of the Debian and Ubuntu packages. Where there is none, [FindDocker] looks for
// a Docker engine on this Linux machine with an image of ZooKeeper, $ZKTEST_IMAGE
// or the official one; its containers use the loopback of this machine, so
// nothing else changes. [Shared] can also use a server that runs elsewhere, named
// by $ZKTEST_SERVERS (host:port, separated by commas). $ZKTEST_REAL=local, docker
// or addr insists on one of the three. When there is nothing to run the test fails
// and says what to install; it never skips.
//
// # Clean-up
//
// Whatever takes a [TB] registers its own clean-up with it. On Linux a server
// also dies with the process that started it, however that process ended, and
// its container is removed ([Docker.Label]); elsewhere a killed test binary leaves
// its servers behind.
package zktest
