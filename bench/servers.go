package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A daemon is a server of another kind, which runs as long as the scope.
type daemon struct {
	command string
	debian  string // the package
	ports   int
	args    func(dir string, addrs []string) []string
}

var (
	// Neither writes to the disk before it answers, as the ZooKeeper of zktest does not.
	etcdServer = daemon{"etcd", "etcd-server", 2, func(dir string, addrs []string) []string {
		client, peer := "http://"+addrs[0], "http://"+addrs[1]
		return []string{
			"--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer, "--log-level", "error",
		}
	}}
	redisServer = daemon{"redis-server", "redis-server", 1, func(dir string, addrs []string) []string {
		host, port, _ := net.SplitHostPort(addrs[0])
		return []string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", dir}
	}}
)

// start returns the address of a server that accepts connections. It ends with the scope.
func (d daemon) start(ctx context.Context, s *scope) string {
	dir, err := os.MkdirTemp(memoryDir(), "zkrecipes-bench-")
	s.must(err)
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	addrs, err := freeAddrs(d.ports)
	s.must(err)
	var out strings.Builder
	cmd := exec.Command(d.command, d.args(dir, addrs)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.Fatalf("%w (Debian: apt-get install %s)", err, d.debian)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = cmd.Wait()
	}()
	s.Cleanup(func() {
		_ = cmd.Process.Kill() // the only failure is that it has ended
		<-ended
	})
	for {
		conn, dialed := net.Dial("tcp", addrs[0])
		if dialed == nil {
			s.must(conn.Close())
			return addrs[0]
		}
		select {
		case <-ended:
			s.Fatalf("%s: %v: %s", d.command, err, out.String())
		default:
			s.must(pause(ctx, lookEvery))
		}
	}
}

// freeAddrs are different ones, on which nobody listens.
func freeAddrs(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, or two might be the same
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// memoryDir is a folder that no disk is behind, or "" where there is none: etcd 3.4 cannot be told to leave its disk alone.
func memoryDir() string {
	const shm = "/dev/shm"
	if _, err := os.Stat(shm); err != nil {
		return ""
	}
	return shm
}

// said is the first line of what a program says of itself, without the details of its build.
func said(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return fmt.Sprintf("%s: %v", filepath.Base(name), err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	first, _, _ = strings.Cut(first, " sha=")
	return first
}
