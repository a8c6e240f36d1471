// Package snapshot changes what a stopped ZooKeeper finds in its newest snapshot when it starts again: what a test cannot wait for.
package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
	"strings"
)

// Dir finds the directory of the snapshots in what a server answers to the word "conf"; empty if there is none.
func Dir(conf string) string {
	_, dir, _ := strings.Cut(conf, "dataDir=")
	dir, _, _ = strings.Cut(dir, "\n")
	return dir
}

// SetCounter sets the child counter of a znode, which is the next sequence number below it. The server must be stopped, must have written a snapshot since
// the znode was made, which it does when it starts, and must not compare digests (zookeeper.digest.enabled=false).
//
// The layout is the server's own (DataTree, SnapStream): a path, the data, the ACL's number, then the persisted stat; at the end an Adler-32 of everything
// before it and a "/".
func SetCounter(dir, path string, counter int32) error {
	newest, err := newestIn(dir)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(newest)
	if err != nil {
		return err
	}
	if err := setCounter(b, path, counter); err != nil {
		return fmt.Errorf("%s: %w", newest, err)
	}
	return os.WriteFile(newest, b, 0o644)
}

func newestIn(dir string) (newest string, err error) {
	all, err := filepath.Glob(filepath.Join(dir, "snapshot.*"))
	if err != nil {
		return "", err
	}
	var last os.FileInfo
	for _, name := range all {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		if last == nil || info.ModTime().After(last.ModTime()) {
			newest, last = name, info
		}
	}
	if last == nil {
		return "", fmt.Errorf("no snapshot in %q", dir)
	}
	return newest, nil
}

var errLayout = errors.New("not the layout of a snapshot")

// The bytes between a node's data and its counter: the ACL's number; czxid, mzxid, ctime, mtime and version.
const beforeCounter = 8 + 8*4 + 4

// The bytes at the end: the sum, and the length of "/" and that.
const sumSize, endSize = 8, 4 + 1

func setCounter(b []byte, path string, counter int32) error {
	at := bytes.Index(b, append(binary.BigEndian.AppendUint32(nil, uint32(len(path))), path...))
	if at < 0 {
		return fmt.Errorf("%s is not in it", path)
	}
	at += 4 + len(path)
	seal := len(b) - sumSize - endSize
	if at+4 > seal || !bytes.Equal(b[seal+sumSize:], []byte{0, 0, 0, 1, '/'}) {
		return errLayout
	}
	size := max(int32(binary.BigEndian.Uint32(b[at:])), 0) // -1 is none
	at += 4 + int(size) + beforeCounter
	if at+4 > seal {
		return errLayout
	}
	binary.BigEndian.PutUint32(b[at:], uint32(counter))
	binary.BigEndian.PutUint64(b[seal:], uint64(adler32.Checksum(b[:seal])))
	return nil
}

// A Server is a real one that a test may stop; zktest.Member is one.
type Server interface {
	FourLetter(ctx context.Context, word string) (string, error)
	Stop() error
	Start() error
}

// SetCounters is SetCounter for a server that runs, and that has these znodes. It is stopped and started for that.
func SetCounters(ctx context.Context, s Server, counters map[string]int32) error {
	conf, err := s.FourLetter(ctx, "conf")
	if err != nil {
		return err
	}
	for _, step := range []func() error{s.Stop, s.Start, s.Stop} { // it writes a snapshot when it starts
		if err := step(); err != nil {
			return err
		}
	}
	for path, n := range counters {
		if err := SetCounter(Dir(conf), path, n); err != nil {
			return errors.Join(err, s.Start())
		}
	}
	return s.Start()
}
