package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// A ledger is a file of one line, "number czxid znode", which nothing but a lock protects: who counts reads it, takes its time, and writes it with one
// more. A line has a fixed length, and is read and written in one call each, so that whoever is killed meanwhile leaves a whole one.
type ledger string

const ledgerLine = 256

// start makes the file.
func (l ledger) start() error { return l.write(entry{node: "-"}) }

// An entry is a line of a ledger.
type entry struct {
	n     int
	czxid int64
	node  string
}

func parseEntry(words []string) (e entry, err error) {
	_, err = fmt.Sscan(strings.Join(words, " "), &e.n, &e.czxid, &e.node)
	return e, err
}

func (e entry) String() string { return fmt.Sprintf("%d %d %s", e.n, e.czxid, e.node) }

func (l ledger) read() (e entry, err error) {
	file, err := os.Open(string(l))
	if err != nil {
		return e, err
	}
	defer func() { _ = file.Close() }()
	line := make([]byte, ledgerLine)
	if _, err := file.ReadAt(line, 0); err != nil {
		return e, err
	}
	return parseEntry(strings.Fields(string(line)))
}

func (l ledger) write(e entry) error {
	file, err := os.OpenFile(string(l), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = file.WriteAt(fmt.Appendf(nil, "%-*s\n", ledgerLine-1, e), 0)
	return err
}

// perform counts or looks, in the words of the peers.
func (l ledger) perform(verb, node string, czxid int64, hold time.Duration) (string, error) {
	before, err := l.read()
	if err != nil {
		return "", err
	}
	<-time.After(hold)
	if verb == "count" {
		return fmt.Sprint(czxid, " ", before), l.write(entry{n: before.n + 1, czxid: czxid, node: node})
	}
	after, err := l.read()
	return fmt.Sprint(czxid, " ", before, " ", after), err
}

// A keeper is a client that can keep a ledger while it holds.
type keeper interface {
	client
	// keep counts or looks, while it holds by node, which is the path where the library does not say.
	keep(ctx context.Context, verb string, l ledger, node string, hold time.Duration) (string, error)
}

func (o *ourClient) keep(_ context.Context, verb string, l ledger, node string, hold time.Duration) (string, error) {
	return l.perform(verb, node, int64(o.lastLease().Token()), hold)
}

// keep finds out which znode its lock is by.
func (z *zkClient) keep(_ context.Context, verb string, l ledger, path string, hold time.Duration) (string, error) {
	names, _, err := z.c.Children(path)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if _, stat, err := z.c.Exists(path + "/" + name); err == nil && stat.EphemeralOwner == z.Session() {
			return l.perform(verb, path+"/"+name, stat.Czxid, hold)
		}
	}
	return "", errors.New("zk.Lock holds by nothing")
}

func (p *Peer) keep(ctx context.Context, verb string, l ledger, node string, hold time.Duration) (string, error) {
	return p.call(ctx, verb, string(l), node, strconv.FormatInt(hold.Milliseconds(), 10))
}
