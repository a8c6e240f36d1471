// Package interop runs the other ZooKeeper clients of a mixed fleet, so that tests can put them into one queue with this library: Java Curator and
// Python's kazoo, as child processes. (The two libraries for Go, this one and go-zookeeper's zk.Lock, need none; where one of them is to be killed, the test
// binary is its process.)
//
// A [Process] is one such child. The clients in it are [Peer] values, each with a ZooKeeper session and a thread of its own, so that one Java machine
// serves a whole test. [Shared] keeps one process of each [Kind] for all tests of a test binary; [Start] gives a test one that it may kill.
//
// # The lines
//
// Parent and child talk by lines of words, none of which has a space in it. A request is answered once; the answers of different peers come in any
// order:
//
//	-> <id> <peer> <verb> [words]
//	<- <id> ok [words]
//	<- <id> error <text>
//	<- event <peer> <text>
//
// The requests of one peer run one after the other, but for close, which ends a wait, and drain. The verbs, and what ok brings:
//
//	open <servers> <timeout in ms>       session id     connects; the first request of a peer
//	<side> <path>                        znode          waits until it is granted; see Side. No znode where the library does not say
//	release <side> <path>
//	tries <side> <path> <ms>             granted/late   of a mutex: waits no longer than that
//	holds <side> <path>                  yes/no, states what the lock itself says without a request, and what was said of the connection
//	drain <path> <n>                                    n threads take a mutex and give it back; it answers when all have
//	close                                               closes the session; what waits gets an error
//	version                              version        of the library
//	count <file> <znode> <ms>            czxid, line    adds one to the number in a ledger, which takes so long, and says what was there
//	look <file> <znode> <ms>             czxid, lines   reads a ledger twice, so long apart
//
// and of Curator's peers alone:
//
//	revocable <side> <path>                             the next acquisition; later "event <peer> revoked"
//	attemptrevoke <znode>
//	participants <side> <path>           words          see Participants
//
// and of kazoo's:
//
//	contenders <side> <path>             words          see Contenders
//
// A ledger is a file of one line, which says "number czxid znode": of how many have counted, and who was the last one.
//
// A new client is a program that reads these lines, a Kind, and the command that starts it. The child ends when its standard input does, and on Linux
// also, whatever state it is in, with the process that started it.
//
// # Their own recipes
//
// [CuratorRecipes] and [KazooRecipes] run the recipes of those clients among themselves, without this library, to see whether the server of zktest does for
// them what a real one does. What stands in the place of a peer is a run with three clients, each on an address of its own, and a script of steps:
//
//	open <timeout in ms> <three servers>
//	steps                                names          of the script; needs no run
//	run <step> <path>                    text           what the step saw, in words that are the same on servers that do the same; "; " between them
//	told                                                what it asked for is done
//	close
//
// A step asks by "event <run> <what> <client>", where the client is 0, 1 or 2, for the end of its session (expire), of its connection (drop), of all its
// connections until it is told otherwise (refuse, accept), or for cuts of all three once in so many frames (cut-15, calm).
package interop
