package zktest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// labelKey is on everything that tests make in an engine. Its value names the
// process that it belongs to.
const labelKey = "zkrecipes.owner"

// Label returns a label, key=value, for containers and networks that belong to
// this process. Whatever bears it is removed when the process has ended, be it
// by SIGKILL. The first call sees to that, and removes what is left of processes
// that are no more, as after a power cut.
//
// Its error says why nobody could be set to watch over this process.
func (d Docker) Label() (string, error) {
	label := labelKey + "=" + processName(os.Getpid())
	guard.once.Do(func() {
		d.removeOrphans()
		guard.input, guard.err = d.startGuard(label)
	})
	return label, guard.err
}

// guard is the shell that outlives this process. Its input is closed by the end
// of the process alone: not by us, and not by a finalizer.
var guard struct {
	once  sync.Once
	input *os.File
	err   error
}

// whenOwnerEnds is run by a shell that outlives its parent: its input ends when
// the parent does. It looks twice, since the engine may be making a
// container that was asked for just before.
const whenOwnerEnds = `cat >/dev/null
for pause in 0 2; do
	sleep $pause
	ids=$("$1" ps --all --quiet --filter "label=$2") && [ -z "$ids" ] || "$1" rm --force --volumes $ids
	ids=$("$1" network ls --quiet --filter "label=$2") && [ -z "$ids" ] || "$1" network rm $ids
done`

func (d Docker) startGuard(label string) (*os.File, error) {
	r, w, err := os.Pipe() // no child of ours gets w
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", whenOwnerEnds, "zktest-guard", d.Command, label)
	cmd.Stdin = r
	cmd.SysProcAttr = apart() // Ctrl-C is for the test, and this has to outlive it
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("zktest: nobody to remove containers after a crash: %w", err)
	}
	return w, nil
}

// removeOrphans removes what belongs to processes that are no more. What it
// cannot remove somebody else is removing.
func (d Docker) removeOrphans() {
	for _, kind := range []struct{ list, remove []string }{
		{[]string{"ps", "--all"}, []string{"rm", "--force", "--volumes"}},
		{[]string{"network", "ls"}, []string{"network", "rm"}},
	} {
		out, err := d.run(append(kind.list, "--filter", "label="+labelKey, "--format", `{{.ID}} {{.Label "`+labelKey+`"}}`)...)
		if err != nil {
			continue
		}
		for line := range strings.Lines(out) {
			if id, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && gone(name) {
				_, _ = d.run(append(kind.remove, id)...)
			}
		}
	}
}

// processName names a process so that no other one is meant after its number was
// given to another, or where numbers mean other processes, as in a container:
// the namespace, the number, and the tick in which it started.
func processName(pid int) string {
	return fmt.Sprintf("%s-%d-%s", pidNamespace(), pid, startTick(pid))
}

// gone tells whether name is of this namespace and no process has it.
func gone(name string) bool {
	var pid int
	parts := strings.Split(name, "-")
	if len(parts) != 3 || parts[0] != pidNamespace() {
		return false
	}
	if _, err := fmt.Sscanf(parts[1], "%d", &pid); err != nil {
		return false
	}
	return processName(pid) != name
}

// pidNamespace is the number in "pid:[4026531836]".
func pidNamespace() string {
	link, _ := os.Readlink("/proc/self/ns/pid")
	return strings.Trim(strings.TrimPrefix(link, "pid:"), "[]")
}

// startTick is empty when there is no such process.
func startTick(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return ""
	}
	// pid (name of the thread) state and so on; the name may hold anything
	stat := string(b)
	if fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]); len(fields) > 19 && fields[0] != "Z" {
		return fields[19]
	}
	return ""
}
