// Bench measures what the locks of this library cost, beside the raw calls of go-zookeeper, its zk.Lock and, with -full, what else a service might pick.
// It prints one table in Markdown, or JSON: every figure is the median of some rounds, and in each round all libraries go through all cells on one server,
// so that what the machine does meanwhile falls on all of them alike. Beside a figure stand the target and whether it is met.
//
// What is counted is counted at the wire, by a proxy between each session and the server. Round trips are the slope of the time over the delay of that
// proxy, at two delays: what the machine takes for the rest falls out.
//
//	make bench                       # prints the table, in less than three minutes
//	make bench BENCHFLAGS=-write     # and writes docs/speed.md with its pictures
//	make bench BENCHFLAGS=-json
//	make bench-full                  # with Java Curator, kazoo, etcd and redsync
//	make bench-growth                # how cost grows with waiters, paths and sessions, and what one ensemble carries
package main
