package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// about is what was measured, where and when.
type about struct {
	Date     string   `json:"date"`
	Server   string   `json:"server"`
	Versions []string `json:"versions"`
	Machine  string   `json:"machine"`
	Load     string   `json:"load,omitempty"` // when it began
	Rounds   int      `json:"rounds"`
}

func (a about) String() string {
	rounds := "One round."
	if a.Rounds > 1 {
		rounds = fmt.Sprintf("Medians of %d rounds.", a.Rounds)
	}
	return fmt.Sprintf("%s, %s. %s. %s. %s", a.Date, a.Server, strings.Join(a.Versions, ", "), a.where(), rounds)
}

// where is the machine, and what else it did.
func (a about) where() string {
	if a.Load == "" {
		return a.Machine
	}
	return a.Machine + ", load average " + a.Load + " at the start"
}

func newAbout(ctx context.Context, ensemble *zktest.Ensemble) about {
	a := about{Date: time.Now().UTC().Format(time.DateOnly), Server: "the server of zktest, in this process"}
	if srvr, err := ensemble.Server(0).FourLetter(ctx, "srvr"); err == nil {
		first, _, _ := strings.Cut(srvr, "\n")
		version, _, _ := strings.Cut(strings.TrimPrefix(first, "Zookeeper version: "), "-") // the rest is its build
		a.Server = "ZooKeeper " + version
	}
	a.Versions = append(a.Versions, "zkrecipes "+commit(ctx))
	a.Versions = append(a.Versions, "go-zookeeper "+dependency("github.com/go-zookeeper/zk"), strings.Replace(runtime.Version(), "go", "Go ", 1))
	a.Machine = fmt.Sprintf("%d CPUs (%s), %s/%s", runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH)
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		a.Load, _, _ = strings.Cut(string(load), " ")
	}
	return a
}

// dependency is the version of a module in this program.
func dependency(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == module {
				return d.Version
			}
		}
	}
	return "of an unknown version"
}

// commit is the one of this tree, if git knows.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "of an unknown commit"
	}
	return "at " + strings.TrimSpace(string(out))
}

// processor is the name that Linux knows.
func processor() string {
	cpus, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(cpus)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "unknown"
}
