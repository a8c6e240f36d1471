package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

var leaderText = help{
	usage: "leader [flags] PATH -- CMD [ARG...]",
	text: `Keeps CMD running on exactly one of the hosts on which this command runs. It takes part in the election at PATH and runs CMD while it leads;
the others stand by. When CMD ends, whatever its exit code, leadership goes to the next in the queue, and this host stands by again after a pause,
which doubles from -backoff to -backoff-max while CMD ends sooner than that. When leadership is lost CMD's process group gets SIGTERM, and SIGKILL
after -grace; by default that is over before anybody else leads.

CMD has ZKLOCK_TOKEN, ZKLOCK_OWNER and ZKLOCK_PATH in its environment. SIGTERM, SIGINT and SIGQUIT are passed on to CMD and end zklock when CMD has
ended; other signals are passed on only. What happens is told on standard error.

Exit codes: CMD's own when it ended on request or with -once, or 128 and the number of a signal; else those of zklock run.
`,
	examples: `  zklock leader /election/scheduler -- ./scheduler
  zklock leader -once /election/import -- ./import     # ends with CMD
  zklock leader -owner "$(hostname)" -backoff 5s /election/indexer -- ./indexer
`,
}

// runLeader is zklock leader.
func runLeader(_ context.Context, args []string, stdout, stderr io.Writer) error {
	var c connection
	var once bool
	var owner string
	j := &job{signals: make(chan os.Signal, 16)}
	fs := leaderText.flags("leader")
	c.flags(fs)
	fs.BoolVar(&once, "once", false, "end with CMD's exit code when it has ended, or with 120 when leadership is lost")
	fs.StringVar(&owner, "owner", "", "`name` to show as the leader (default host/pid)")
	fs.DurationVar(&j.grace, "grace", unset, "`time` from SIGTERM to SIGKILL when leadership is lost (default a sixth of -session-timeout, at most 3s)")
	fs.Lookup("grace").DefValue = "0s" // so that it is not shown
	fs.BoolVar(&j.revoke, "revocable", false, "send CMD a SIGTERM when somebody asks for leadership back (zklock revoke)")
	first := positiveVar(fs, "backoff", time.Second, "first `pause` when CMD has ended")
	longest := positiveVar(fs, "backoff-max", time.Minute, "longest `pause`")
	path, argv, err := parseCommand(fs, args, stdout)
	switch {
	case err != nil:
		return err
	case *longest < *first:
		return wrong("-backoff %v is longer than -backoff-max %v", first, longest)
	case owner == "" && given(fs, "owner"):
		return usageError{"-owner is empty"}
	}
	j.path, j.argv, j.tell = path, argv, teller(stderr, "leader")
	if j.grace < 0 && j.grace != unset {
		return wrong("-grace %v: 0s, which kills at once, or more", j.grace)
	}
	if err := j.find(); err != nil {
		return err
	}

	hear(j.signals, waitSignals)
	ctx, stop := untilSignal(context.Background(), j.signals)
	session, err := c.open(ctx, c.log(stderr, true))
	stop()
	if stopped := interrupted(ctx); stopped != nil {
		return stopped
	}
	if err != nil {
		return err
	}
	defer leave(session)
	j.fit(session)
	opts := []zkrecipes.LeaderOption{zkrecipes.WithoutRequeue()}
	if owner != "" {
		opts = append(opts, zkrecipes.WithOwner(zkrecipes.Owner(owner)))
	}
	t := &terms{job: j, selector: zkrecipes.NewLeaderSelector(session, path, opts...)}
	pause := pauses{time.Duration(*first), time.Duration(*longest), 0}
	for {
		j.tell("stands by at %s", path)
		o, err := t.next()
		switch {
		case err != nil:
			return err
		case once, o.isOver():
			return o.exit()
		case o.lost != nil: // not CMD's doing
			continue
		}
		d := pause.after(o.ran)
		j.tell("the command has ended with exit code %d, and may run here again in %v", o.code, d)
		if err := j.wait(d); err != nil {
			return err
		}
	}
}

// terms are those of one participant.
type terms struct {
	job      *job
	selector *zkrecipes.LeaderSelector
}

// next takes part until this process has led once, and returns how CMD has ended in that term.
func (t *terms) next() (o outcome, err error) {
	ctx, stop := untilSignal(context.Background(), t.job.signals)
	defer stop()
	var failed error
	err = t.selector.Run(ctx, func(ctx context.Context) error {
		stop() // from here on signals are CMD's
		lease, ok := zkrecipes.LeaseFromContext(ctx)
		if !ok || ctx.Err() != nil {
			return nil
		}
		t.job.tell("leads at %s as %s with token %d", t.job.path, lease.Owner(), lease.Token())
		o, failed = t.job.run(lease)
		return nil
	})
	stop()
	if stopped := interrupted(ctx); stopped != nil {
		return o, stopped
	}
	if failed != nil {
		return o, failed
	}
	if err != nil && errors.Is(err, zkrecipes.ErrLost) {
		if o.lost == nil {
			o.lost = err
		}
		return o, nil
	}
	return o, failure(err)
}

// isOver tells whether CMD has ended because zklock shall.
func (o outcome) isOver() bool {
	for _, end := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT} {
		if slices.Contains(o.asked, end) {
			return true
		}
	}
	// A hang-up may have been a request to read the configuration again. Ctrl-C reaches CMD alone where it has the terminal.
	return o.killed != 0 && (slices.Contains(o.asked, os.Signal(o.killed)) || o.tty && o.killed == syscall.SIGINT)
}

// pauses are those between two runs.
type pauses struct {
	first, longest, last time.Duration
}

// after is the next one, after a run that took so long.
func (p *pauses) after(ran time.Duration) time.Duration {
	if p.last == 0 || ran >= p.longest {
		p.last = p.first
	} else {
		p.last = min(2*p.last, p.longest)
	}
	return p.last
}

// wait waits, until a signal comes.
func (j *job) wait(d time.Duration) error {
	ctx, stop := untilSignal(context.Background(), j.signals)
	defer stop()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return interrupted(ctx)
	}
}
