package zkrecipes

import (
	"crypto/tls"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A DialOption configures Dial.
type DialOption interface{ applyDial(*dialConfig) }

// A SessionOption configures Dial and NewSession.
type SessionOption interface {
	DialOption
	applySession(*sessionConfig)
}

// A LeaderOption configures a LeaderLatch or LeaderSelector.
type LeaderOption interface{ applyLeader(*leaderConfig) }

// A LockOption configures any recipe that queues for a lease; every LockOption is a LeaderOption as well.
type LockOption interface {
	LeaderOption
	applyLock(*lockConfig)
}

type (
	sessionConfig struct {
		timeout   time.Duration
		logger    *slog.Logger
		acl       []zk.ACL
		strict    bool
		trace     []*Trace
		namespace string
		name      string
		tracks    []*core.Track

		noShortcuts bool // every waiter lists, for tests
	}
	dialConfig struct {
		sessionConfig
		dialer zk.Dialer
		tls    *tls.Config
		auth   [][2]string
	}
	lockConfig struct {
		owner   *Owner // nil: made up
		data    []byte
		hasData bool
		label   bool // the recipe's: its owner is a label, which never enters again
		maxHold time.Duration
	}
	leaderConfig struct {
		lockConfig
		once bool // WithoutRequeue
	}
)

type leaderOption func(*leaderConfig)

func (f leaderOption) applyLeader(c *leaderConfig) { f(c) }

// WithoutRequeue lets a LeaderSelector's Run return after one term.
func WithoutRequeue() LeaderOption { return leaderOption(func(c *leaderConfig) { c.once = true }) }

type (
	dialOption    func(*dialConfig)
	sessionOption func(*sessionConfig)
	lockOption    func(*lockConfig)
)

func (f dialOption) applyDial(c *dialConfig)          { f(c) }
func (f sessionOption) applyDial(c *dialConfig)       { f(&c.sessionConfig) }
func (f sessionOption) applySession(c *sessionConfig) { f(c) }
func (f lockOption) applyLeader(c *leaderConfig)      { f(&c.lockConfig) }
func (f lockOption) applyLock(c *lockConfig)          { f(c) }

const (
	defaultTimeout = 10 * time.Second
	minTimeout     = time.Millisecond
	maxTimeout     = (1<<31 - 1) * time.Millisecond // what the protocol can say
)

// WithTimeout sets the session timeout that Dial asks for (default 10 s); the server may grant another, within its minSessionTimeout and
// maxSessionTimeout. A lease ends when nothing has proved the session alive for two thirds of it, so it bounds both how fast a dead holder is replaced
// and how long an outage a live one survives. Choose at least three ticks of the server, better five.
//
// For NewSession it is the timeout that the connection has negotiated, not the one that was asked for, and required: go-zookeeper does not tell it, and a
// value that is too large lets leases outlive the session. With TrackContact it is not needed.
func WithTimeout(d time.Duration) SessionOption {
	return sessionOption(func(c *sessionConfig) { c.timeout = d })
}

// WithDialer replaces how TCP connections are made. It is given each server as written in the list, not an address, and should give up after the
// timeout it is passed.
func WithDialer(d zk.Dialer) DialOption { return dialOption(func(c *dialConfig) { c.dialer = d }) }

// WithTLS encrypts every connection. Unless the config says otherwise, the certificate is verified against the name in the server list, not the address
// it resolved to.
func WithTLS(t *tls.Config) DialOption { return dialOption(func(c *dialConfig) { c.tls = t }) }

// WithAuth adds a credential, such as WithAuth("digest", "user:password"). It is given to the server before any request of this library, on every
// connection. It may be used several times. ZooKeeper does not check a digest when it is given: a wrong one shows as zk.ErrNoAuth from the first call
// that needs it.
func WithAuth(scheme, auth string) DialOption {
	return dialOption(func(c *dialConfig) { c.auth = append(c.auth, [2]string{scheme, auth}) })
}

// WithLogger sets where the session logs; the default is slog.Default. Lost connections and leases are warnings, what needs a person is an error, the
// client underneath is at debug level. Data and credentials are never logged.
func WithLogger(l *slog.Logger) SessionOption {
	return sessionOption(func(c *sessionConfig) { c.logger = l })
}

// WithACL is for every znode that the recipes create, parents included (default world:anyone, all permissions). The recipes themselves need create,
// read and delete; [Revoke] and [DoubleBarrier] write, too.
func WithACL(acl ...zk.ACL) SessionOption {
	return sessionOption(func(c *sessionConfig) { c.acl = append([]zk.ACL{}, acl...) })
}

// WithLoseOnDisconnect ends leases at every disconnect, Curator's default policy, in addition to the lease clock. On an adopted connection without
// TrackContact a disconnect is seen late, by up to a fiftieth of the timeout, or by the request that it leaves unanswered; one that is shorter than that
// and during which there was no request is not seen.
func WithLoseOnDisconnect() SessionOption {
	return sessionOption(func(c *sessionConfig) { c.strict = true })
}

// WithTrace adds hooks; it may be given several times.
func WithTrace(t *Trace) SessionOption {
	return sessionOption(func(c *sessionConfig) {
		if t != nil {
			c.trace = append(c.trace, t)
		}
	})
}

// WithNamespace puts every path that is passed to a recipe under prefix, as Curator's namespace and a chroot do. Lease.Path and Error.Path are inside
// it; Lease.Node, Participant.Node, Lease.Check and Session.Conn are absolute.
func WithNamespace(prefix string) SessionOption {
	return sessionOption(func(c *sessionConfig) { c.namespace = prefix })
}

// WithName labels this process in the owners that are made up for it (default host/pid). It has no part in re-entry.
func WithName(label string) SessionOption {
	return sessionOption(func(c *sessionConfig) { c.name = label })
}

// WithOwner sets the owner of acquisitions whose ctx carries none.
//
// Equal owners do not exclude each other. On a Mutex that goroutines share it turns exclusion between them off; to label znodes use WithName.
func WithOwner(o Owner) LockOption { return lockOption(func(c *lockConfig) { c.owner = &o }) }

// WithData replaces the owner as the znode's data. Participant.Owner is then empty, also in errors; who waits without WithData takes the data for an owner, and
// shows them: give it to all that use a path, and put no secrets there.
func WithData(data []byte) LockOption {
	return lockOption(func(c *lockConfig) { c.data, c.hasData = slices.Clone(data), true })
}

// WithMaxHold ends a lease by itself after d, even if its holder is alive but stuck (Redisson's leaseTime, a lock table's timeout job). Then the lease
// is lost with ReasonHoldLimit and its znode is deleted. The limit belongs to the hold: when it is entered again the earliest deadline counts.
func WithMaxHold(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.maxHold = d })
}
