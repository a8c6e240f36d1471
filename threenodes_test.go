package zkrecipes

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkcontainer"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// threeNodes is an ensemble whose nodes, from 0, fall silent or fail. To be cut off is the worse: nobody is told.
type threeNodes interface {
	Addrs() []string
	Cut(node int) error
	Heal(node int) error
	Stop(node int) error
	Start(node int) error
	WaitReady(ctx context.Context) error
}

// startThreeNodes starts an ensemble that goes with the test: on a network of its own when the servers of this run are containers, else on loopback.
func startThreeNodes(t testing.TB) threeNodes {
	t.Helper()
	if os.Getenv("ZKTEST_REAL") == "docker" {
		return zkcontainer.Start(t)
	}
	return onLoopback{zktest.Start(t, zktest.Servers(3))}
}

// onLoopback has no network to take a node off. A node that is paused is as silent to its clients and to the other nodes.
type onLoopback struct{ *zktest.Ensemble }

func (e onLoopback) Cut(node int) error   { return e.Server(node).Pause() }
func (e onLoopback) Heal(node int) error  { return e.Server(node).Resume() }
func (e onLoopback) Stop(node int) error  { return e.Server(node).Kill() }
func (e onLoopback) Start(node int) error { return e.Server(node).Start() }

// servedBy finds the node that a session is connected to.
func servedBy(t testing.TB, e threeNodes, s *Session) (node int) {
	t.Helper()
	eventually(t, 20*time.Second, "a node says that it has the session", func() bool {
		for i, addr := range e.Addrs() {
			answers, _ := zk.FLWCons([]string{addr}, time.Second)
			for _, answer := range answers {
				for _, client := range answer.Clients {
					if client.SessionID == s.ID() {
						node = i
						return true
					}
				}
			}
		}
		return false
	})
	return node
}
