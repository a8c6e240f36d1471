package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A serverSide is what a server tells of itself, and what this machine tells of its process, if it runs here. What neither tells is NaN.
type serverSide struct {
	member *zktest.Member
	pid    int // 0 when it is not known, or this process
}

func newServerSide(m *zktest.Member) serverSide {
	pid := listenerOf(m.Addr())
	if pid == os.Getpid() {
		pid = 0 // a server of zktest, whose time and heap are not to be told from those of its clients
	}
	return serverSide{m, pid}
}

// Figures of mntr.
const (
	mntrWatches  = "zk_watch_count"
	mntrZnodes   = "zk_znode_count"
	mntrDataSize = "zk_approximate_data_size"
)

// monitor is a figure of mntr.
func (s serverSide) monitor(ctx context.Context, key string) float64 {
	answer, err := s.member.FourLetter(ctx, "mntr")
	if err != nil {
		return math.NaN()
	}
	return monitored(answer, key)
}

// monitored finds a figure in an answer to mntr.
func monitored(answer, key string) float64 {
	for line := range strings.Lines(answer) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && name == key {
			return parsed(value)
		}
	}
	return math.NaN()
}

func parsed(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// heap is how many bytes of its heap live objects take. To tell them from the others the JVM collects garbage first.
func (s serverSide) heap(ctx context.Context) float64 {
	if s.pid == 0 {
		return math.NaN()
	}
	out, err := exec.CommandContext(ctx, "jcmd", strconv.Itoa(s.pid), "GC.class_histogram").Output()
	if err != nil {
		return math.NaN()
	}
	return liveBytes(string(out))
}

// liveBytes finds the sum of a histogram of classes: Total, instances, bytes.
func liveBytes(histogram string) float64 {
	for line := range strings.Lines(histogram) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "Total" {
			return parsed(words[2])
		}
	}
	return math.NaN()
}

// cpu is how many seconds of processors it has had.
func (s serverSide) cpu() float64 { return cpuOf(strconv.Itoa(s.pid)) }

// ownCPU is the same of this process.
func ownCPU() float64 { return cpuOf("self") }

func cpuOf(process string) float64 {
	stat, err := os.ReadFile(filepath.Join("/proc", process, "stat"))
	if err != nil {
		return math.NaN()
	}
	return cpuSeconds(string(stat))
}

// ticksPerSecond is the unit of Linux in what it shows of processes, on every machine that Go knows.
const ticksPerSecond = 100

// cpuSeconds is the time in user and kernel mode of a /proc/PID/stat. The name of a process, in parentheses, may hold anything.
func cpuSeconds(stat string) float64 {
	_, rest, ok := strings.Cut(stat[max(0, strings.LastIndex(stat, ")")):], ") ")
	words := strings.Fields(rest) // from the third one on
	if !ok || len(words) < 13 {
		return math.NaN()
	}
	return (parsed(words[11]) + parsed(words[12])) / ticksPerSecond
}

// listenerOf is the process of this machine that listens at an address, or 0.
func listenerOf(addr string) int {
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !at.Addr().IsLoopback() {
		return 0 // another machine's process may have the same port
	}
	var sockets []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if f, err := os.Open(table); err == nil {
			for lines := bufio.NewScanner(f); lines.Scan(); {
				if inode, ok := listens(lines.Text(), at); ok {
					sockets = append(sockets, "socket:["+inode+"]")
				}
			}
			_ = f.Close()
		}
	}
	for _, socket := range sockets {
		files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, file := range files {
			if target, err := os.Readlink(file); err == nil && target == socket {
				pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
				return pid
			}
		}
	}
	return 0
}

// listens returns the inode of a line of /proc/net/tcp if it is of a socket that listens at this address, or at its port of all.
func listens(line string, at netip.AddrPort) (inode string, ok bool) {
	const (
		local, state, node = 1, 3, 9
		listening          = "0A"
	)
	words := strings.Fields(line)
	if len(words) <= node || words[state] != listening {
		return "", false
	}
	host, port, _ := strings.Cut(words[local], ":")
	if port != fmt.Sprintf("%04X", at.Port()) {
		return "", false
	}
	b, err := hex.DecodeString(host)
	if err != nil || len(b)%4 != 0 {
		return "", false
	}
	for i := 0; i < len(b); i += 4 { // written as numbers of this machine
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, valid := netip.AddrFromSlice(b)
	return words[node], valid && (a.Unmap() == at.Addr().Unmap() || a.IsUnspecified())
}
