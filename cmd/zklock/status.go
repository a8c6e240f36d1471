package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

var statusText = help{
	usage: "status [flags] PATH",
	text: `Shows who holds and who waits at PATH, in the order of the queue: the locks, read/write locks, semaphores and elections of zkrecipes and Curator, those
of go-zookeeper and of kazoo. Each line is a znode; zklock revoke and zklock break take its path. AGE goes by this host's clock and the server's.
At a semaphore's path the permits that are held come first.

With -watch it goes on and shows every change, on a terminal in place, until Ctrl-C.
`,
	examples: `  zklock status /locks/report
  zklock status -watch /election/scheduler
  zklock status -json /locks/report | jq -r '.participants[] | select(.holding) | .owner'
`,
}

// A standing is one look at a lock's path.
type standing struct {
	Path         string        `json:"path"`
	Time         time.Time     `json:"time"`
	Exists       bool          `json:"exists"`
	Participants []participant `json:"participants"`
}

// A participant is one znode, as -json shows it. Nodes are inside the chroot, sessions as ZooKeeper's own tools write them.
type participant struct {
	Node     string    `json:"node"`
	Owner    string    `json:"owner"`
	Session  string    `json:"session"`
	Token    int64     `json:"token"`
	Mode     string    `json:"mode"`
	Holding  bool      `json:"holding"`
	Position int       `json:"position"`
	Since    time.Time `json:"since"`
	Age      float64   `json:"age_seconds"`
}

// runStatus is zklock status.
func runStatus(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var c connection
	var asJSON, watch bool
	fs := statusText.flags("status")
	c.flags(fs)
	fs.BoolVar(&asJSON, "json", false, "print one JSON object in a line, with -watch one for each change")
	fs.BoolVar(&watch, "watch", false, "go on, and show every change")
	path, err := parsePath(fs, args, stdout)
	if err != nil {
		return err
	}
	session, err := c.look(ctx)
	if err != nil {
		return err
	}
	defer leave(session)
	v := &view{session: session, c: &c, path: path, out: stdout, json: asJSON, colour: coloured(stdout)}
	if watch {
		return v.watch(ctx)
	}
	st, err := v.look(ctx)
	if err != nil {
		return failure(err)
	}
	return v.print(st)
}

// A view looks at a path and prints what is there.
type view struct {
	session *zkrecipes.Session
	c       *connection
	path    string
	out     io.Writer
	json    bool
	colour  bool
}

func (v *view) look(ctx context.Context) (standing, error) {
	ps, err := zkrecipes.Inspect(ctx, v.session, v.path)
	if err != nil {
		return standing{}, err
	}
	st := standing{Path: v.path, Time: time.Now(), Exists: true, Participants: make([]participant, 0, len(ps))}
	for _, p := range ps {
		st.Participants = append(st.Participants, participant{
			Node: v.c.inside(p.Node), Owner: string(p.Owner), Session: sessionID(p.Session), Token: int64(p.Token), Mode: p.Mode.String(),
			Holding: p.Holding, Position: p.Position, Since: p.Since,
		})
	}
	st.age()
	if len(ps) > 0 {
		return st, nil
	}
	st.Exists, _, err = v.session.Conn().Exists(v.c.outside(v.path))
	if errors.Is(err, zk.ErrNoAuth) { // from 3.8.4 on it needs permission to read
		return st, nil
	}
	return st, err
}

// age brings the ages up to date; clocks that differ make nobody younger than nothing.
func (st *standing) age() {
	for i := range st.Participants {
		p := &st.Participants[i]
		p.Age = max(0, time.Since(p.Since).Round(time.Millisecond).Seconds())
	}
}

func sessionID(id int64) string { return "0x" + strconv.FormatUint(uint64(id), 16) }

func (v *view) print(st standing) error {
	if v.json {
		b, err := json.Marshal(st)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(v.out, "%s\n", b)
		return err
	}
	_, err := io.WriteString(v.out, v.text(st))
	return err
}

// text is what people see.
func (v *view) text(st standing) string {
	switch {
	case !st.Exists:
		return fmt.Sprintf("%s does not exist: nobody holds it, nobody waits\n", shown(v.path))
	case len(st.Participants) == 0:
		return fmt.Sprintf("nobody holds %s, nobody waits\n", shown(v.path))
	}
	t := table{}
	if v.colour {
		t.colour = map[string]string{"holds": "32", "waits": "33"}
	}
	t.add("POS", "STATE", "MODE", "OWNER", "SESSION", "TOKEN", "AGE", "NODE")
	for _, p := range st.Participants {
		state := "waits"
		if p.Holding {
			state = "holds"
		}
		t.add(strconv.Itoa(p.Position), state, p.Mode, shown(p.Owner), p.Session, strconv.FormatInt(p.Token, 10), age(p.Age), shown(p.Node))
	}
	return t.String()
}

// age is a duration in the two greatest units that it has.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Truncate(time.Second)
	if day := 24 * time.Hour; d >= day {
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
	if d >= time.Hour {
		d = d.Truncate(time.Minute)
		return strings.TrimSuffix(d.String(), "0s")
	}
	return d.String()
}
