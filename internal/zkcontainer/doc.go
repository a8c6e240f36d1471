// Package zkcontainer runs three ZooKeeper servers for a test on a network of their own, and takes single ones off it.
//
// What it adds to package zktest, whose servers share the loopback of this machine: each of these has an address, and one that
// is cut off is so from its clients and from the other servers alike, and knows nothing of it, as when a switch fails. Containers
// are reached by their addresses, which a Linux machine with an engine of its own does; elsewhere Start says so.
//
// It is the only package that imports testcontainers-go, and only tests import it; a test in internal/tools/layout holds both.
//
// # Clean-up
//
// Containers and network go with the test. If the test is killed they go with its process, and what a power cut has left goes
// with the next test that starts any: see [zktest.Docker.Label]. Ryuk, which testcontainers-go has for this, is an image that
// may not be there to pull; it is disabled unless TESTCONTAINERS_RYUK_DISABLED says otherwise.
package zkcontainer
