package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

var runText = help{
	usage: "run [flags] PATH -- CMD [ARG...]",
	text: `Holds the lock at PATH while CMD runs: flock(1) for a fleet. It waits for its turn, in the order of arrival, starts CMD, gives the lock back when
CMD has ended, and ends with CMD's exit code.

CMD has ZKLOCK_TOKEN, ZKLOCK_OWNER and ZKLOCK_PATH in its environment. The token grows with every grant: pass it on with what CMD writes, so
that a write which comes too late can be refused. Signals are passed on to CMD's process group. When the lock is lost, as when the network is
gone, that group gets SIGTERM, and SIGKILL after -grace; by default that is over before anybody else is granted.

Exit codes: CMD's own, or 128 and the number of the signal that ended it; 2 usage, 120 lost while CMD ran, 121 no connection, 122 held (-try),
124 not had within -timeout, 125 another failure, 126 CMD cannot be started, 127 CMD was not found.
`,
	examples: `  zklock run /locks/migrate -- ./migrate up            # one host after the other
  zklock run -try /cron/report -- report --daily       # one host, the others skip it: exit code 122
  zklock run -timeout 30s /locks/deploy -- ./deploy    # 124 when it is not our turn in time
  zklock run -shared /locks/prices -- ./read-prices    # beside other readers, not beside a writer
  zklock run -permits 3 /limits/export -- ./export     # three at once in the whole fleet
`,
}

// runRun is zklock run.
func runRun(_ context.Context, args []string, stdout, stderr io.Writer) error {
	var c connection
	var try, shared, verbose bool
	var permits int
	var owner string
	j := &job{terminal: isTerminal(os.Stdin) && isTerminal(os.Stdout), signals: make(chan os.Signal, 16)}
	fs := runText.flags("run")
	c.flags(fs)
	timeout := positiveVar(fs, "timeout", 0, "give up when the lock is not had within this `time` (default: wait for ever; 15s for a connection)")
	fs.BoolVar(&try, "try", false, "do not wait: end with 122 when somebody else holds the lock or waits for it")
	fs.BoolVar(&shared, "shared", false, "hold it together with others that are -shared, as a reader")
	fs.IntVar(&permits, "permits", 0, "at most this `number` of holders at once; all must name the same (default: one)")
	fs.StringVar(&owner, "owner", "", "`name` to show as the holder (default host/pid)")
	fs.DurationVar(&j.grace, "grace", unset, "`time` from SIGTERM to SIGKILL when the lock is lost (default a sixth of -session-timeout, at most 3s)")
	fs.BoolVar(&j.revoke, "revocable", false, "send CMD a SIGTERM when somebody asks for the lock back (zklock revoke)")
	fs.BoolVar(&verbose, "v", false, "tell on standard error what happens")
	fs.Lookup("grace").DefValue = "0s" // so that it is not shown
	path, argv, err := parseCommand(fs, args, stdout)
	switch {
	case err != nil:
		return err
	case permits < 0 || permits == 0 && given(fs, "permits"):
		return wrong("-permits %d: at least 1", permits)
	case permits > 0 && shared:
		return usageError{"-permits lets so many in, -shared all readers: one of the two"}
	case owner == "" && given(fs, "owner"):
		return usageError{"-owner is empty"}
	}
	j.path, j.argv = path, argv
	if j.grace < 0 && j.grace != unset {
		return wrong("-grace %v: 0s, which kills at once, or more", j.grace)
	}
	tell := teller(stderr, "run")
	j.tell = tell
	if !verbose {
		tell = func(string, ...any) {}
	}
	if err := j.find(); err != nil {
		return err
	}

	hear(j.signals, waitSignals)
	ctx, stop := untilSignal(context.Background(), j.signals)
	defer stop()
	if *timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(*timeout), fmt.Errorf("no answer within -timeout %v", time.Duration(*timeout)))
		defer cancel()
	}
	session, err := c.open(ctx, c.log(stderr, verbose), zkrecipes.WithTrace(&zkrecipes.Trace{
		Waiting: func(_ context.Context, _, _ string, ahead int) { tell("waiting for %s, %d ahead", path, ahead) },
	}))
	if err != nil {
		if stopped := interrupted(ctx); stopped != nil {
			return stopped
		}
		return err
	}
	defer leave(session)
	j.fit(session)

	lock := locker(session, path, shared, permits, owner)
	take := lock.Lock
	if try {
		take = lock.TryLock
		if *timeout == 0 { // it waits for nobody, but for a connection
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, connectWithin, fmt.Errorf("no answer within %v", connectWithin))
			defer cancel()
		}
	}
	lease, err := take(ctx)
	stop()
	if stopped := interrupted(ctx); stopped != nil {
		return stopped // closing the session gives back what was granted meanwhile
	}
	if err != nil {
		return refused(session, err, path, try)
	}
	tell("%s is held as %s with token %d", path, lease.Owner(), lease.Token())

	o, err := j.run(lease)
	if err != nil {
		return err
	}
	if err := lease.Release(context.Background()); errors.Is(err, zkrecipes.ErrLost) && o.lost == nil {
		o.lost = err
	} else if err != nil && o.lost == nil {
		j.tell("the lock could not be given back, and ends with the session in %v: %v", time.Duration(*c.timeout), err)
	}
	return o.exit()
}

// locker is the recipe that the flags describe.
func locker(s *zkrecipes.Session, path string, shared bool, permits int, owner string) zkrecipes.Locker {
	var opts []zkrecipes.LockOption
	if owner != "" {
		opts = append(opts, zkrecipes.WithOwner(zkrecipes.Owner(owner)))
	}
	switch {
	case permits > 0:
		return zkrecipes.NewSemaphore(s, path, permits, opts...).Locker(1)
	case shared:
		return zkrecipes.NewRWLock(s, path, opts...).RLocker()
	}
	return zkrecipes.NewMutex(s, path, opts...) // a writer to readers here, and what most other clients know
}

// refused is the failure of an acquisition.
func refused(s *zkrecipes.Session, err error, path string, try bool) error {
	switch {
	case errors.Is(err, zkrecipes.ErrNoConnection):
	case try && errors.Is(err, zkrecipes.ErrHeld):
		return exit(exitHeld, "%s%s; without -try it is waited for, and zklock status %s shows more", path, inTheWay(s, err, path), path)
	case errors.Is(err, context.DeadlineExceeded):
		return exit(exitTimeout, "%s%s, not had in time; zklock status %s shows more", path, inTheWay(s, err, path), path)
	}
	return failure(err)
}

// inTheWay says who holds a lock, or who else is ahead. The refusal itself may know a znode only, or nobody yet.
func inTheWay(s *zkrecipes.Session, err error, path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	ps, _ := zkrecipes.Inspect(ctx, s, path) // without an answer there is nobody to name
	refusal, _ := errors.AsType[*zkrecipes.Error](err)
	for _, p := range ps {
		if refusal != nil && len(refusal.Ahead) > 0 && p.Node == refusal.Ahead[0].Node {
			if !p.Holding {
				return " is waited for by " + who(p)
			}
			return " is held by " + who(p)
		}
	}
	for _, p := range ps.Holders() {
		return " is held by " + who(p)
	}
	return " is held"
}

// unset is the value of -grace that nobody gave.
const unset = -1

// fit gives CMD the default grace time, by what the server has granted, which may be less than was asked for.
func (j *job) fit(s *zkrecipes.Session) {
	if j.grace == unset {
		j.grace = killedAfterLoss(s.Timeout())
	}
}

// log is where the session logs: a lost connection is worth a line when lines are wanted.
func (c *connection) log(stderr io.Writer, verbose bool) zkrecipes.DialOption {
	if !verbose {
		return zkrecipes.WithLogger(slog.New(slog.DiscardHandler))
	}
	return zkrecipes.WithLogger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// teller prints lines for people, each in one write.
func teller(w io.Writer, command string) func(string, ...any) {
	return func(format string, args ...any) { fmt.Fprintf(w, "zklock "+command+": "+format+"\n", args...) }
}
