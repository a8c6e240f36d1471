// Command zkping says whether every one of the given servers answers as a ZooKeeper that serves requests:
//
//	zkping host:port[,host:port...]
//
// It opens a session on each and closes it again. The four-letter words would be less work, but servers may forbid them, and a
// server that has lost its quorum answers them all the same.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const timeout = 10 * time.Second

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: zkping host:port[,host:port...]")
		os.Exit(2)
	}
	if err := pingAll(os.Args[1], timeout); err != nil {
		fmt.Fprintln(os.Stderr, "zkping:", err)
		os.Exit(1)
	}
}

func pingAll(servers string, timeout time.Duration) error {
	var errs []error
	for addr := range strings.SplitSeq(servers, ",") {
		addr = strings.TrimSpace(addr)
		if strings.Contains(addr, "/") {
			errs = append(errs, fmt.Errorf("%s: want host:port, no path", addr))
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			addr = net.JoinHostPort(strings.Trim(addr, "[]"), "2181")
		}
		if err := ping(addr, timeout); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", addr, err))
		}
	}
	return errors.Join(errs...)
}

var errNotZooKeeper = errors.New("the answer is not ZooKeeper's")

// ping opens a session at addr and closes it.
func ping(addr string, timeout time.Duration) error {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}

	// Connect request: protocol version, last zxid seen, timeout in ms, session id, password.
	req := binary.BigEndian.AppendUint32(nil, 0)
	req = binary.BigEndian.AppendUint64(req, 0)
	req = binary.BigEndian.AppendUint32(req, uint32(timeout.Milliseconds()))
	req = binary.BigEndian.AppendUint64(req, 0)
	req = binary.BigEndian.AppendUint32(req, 16)
	req = append(req, make([]byte, 16)...)
	reply, err := exchange(conn, req)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the connection was closed without an answer: not a ZooKeeper, or one that does not serve now: %w", err)
	}
	if err != nil {
		return err
	}
	// Protocol version, timeout, session id, length of the password, ... : a refused session has id 0.
	if len(reply) < 20 || binary.BigEndian.Uint32(reply[16:]) != 16 {
		return errNotZooKeeper
	}
	if binary.BigEndian.Uint64(reply[8:]) == 0 {
		return errors.New("the server refused the session")
	}

	// closeSession, opcode -11; without it the session would live on until its timeout.
	req = binary.BigEndian.AppendUint32(nil, 1)
	closeSession := int32(-11)
	req = binary.BigEndian.AppendUint32(req, uint32(closeSession))
	_, err = exchange(conn, req)
	return err
}

// exchange sends one frame and reads one.
func exchange(conn net.Conn, req []byte) ([]byte, error) {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(req)))
	if _, err := conn.Write(append(frame, req...)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 1024 {
		return nil, errNotZooKeeper
	}
	reply := make([]byte, n)
	_, err := io.ReadFull(conn, reply)
	return reply, err
}
