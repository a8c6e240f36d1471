// Package zktest runs a real ZooKeeper for a test and breaks the network
// between it and its clients, frame by frame.
//
// Two things live here. [Start] launches one server, or a quorum, as child
// processes on loopback, and lets a test kill, pause, wipe and restart each of
// them. [NewProxy] puts a TCP proxy between one client and one server; it reads
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
// of the Debian and Ubuntu packages. [Shared] can also use a server that runs
// elsewhere, named by $ZKTEST_SERVERS (host:port, separated by commas).
// $ZKTEST_REAL=local or $ZKTEST_REAL=addr insists on one of the two. When there
// is nothing to run the test fails and says what to install; it never skips.
//
// # Clean-up
//
// Whatever takes a [TB] registers its own clean-up with it. On Linux a server
// also dies with the process that started it, however that process ended;
// elsewhere a killed test binary leaves its servers behind.
package zktest
