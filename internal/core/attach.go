package core

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// endSession ends a session for certain, over a connection of its own: nil when a server answered that it is over. With session 0 it only asks whether
// a server serves, by making a session and closing it.
func (r route) endSession(ctx context.Context, session int64, passwd []byte, timeout time.Duration) error {
	names := r.servers.list()
	var errs []error
	for _, i := range rand.Perm(len(names)) {
		server := names[i]
		err := r.endSessionAt(ctx, server, session, passwd, timeout)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
		if ctx.Err() != nil {
			break
		}
	}
	if len(names) == 0 {
		return errors.New("no server is known")
	}
	return errors.Join(errs...)
}

func (r route) endSessionAt(ctx context.Context, server string, session int64, passwd []byte, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+timeout/3)
	defer cancel()
	c, err := r.connect(ctx, "tcp", server, timeout/3)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.Write(appendConnectRequest(nil, 0, int32(timeout/time.Millisecond), session, passwd)); err != nil {
		return err
	}
	br := bufio.NewReader(c)
	frame, err := readFrame(br)
	if err != nil {
		return err
	}
	reply, ok := parseConnectReply(frame)
	if !ok {
		return fmt.Errorf("%s does not speak ZooKeeper's protocol", server)
	}
	if reply.session == 0 {
		if session == 0 {
			return errors.New("no session given")
		}
		return nil
	}
	const xid = 1
	if _, err := c.Write(appendCloseRequest(nil, xid)); err != nil {
		return err
	}
	for {
		frame, err := readFrame(br)
		if err != nil {
			return err
		}
		if len(frame) < 20 || int32(binary.BigEndian.Uint32(frame[4:])) != xid {
			continue
		}
		if session != 0 && reply.session != session {
			return fmt.Errorf("the server has made session %s instead of going on with it", sessionID(reply.session))
		}
		if code := int32(binary.BigEndian.Uint32(frame[16:])); code != 0 && code != codeSessionExpired {
			return fmt.Errorf("closing the session: server code %d", code)
		}
		return nil
	}
}

func readFrame(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	n, ok := frameLen(head)
	if !ok {
		return nil, net.ErrClosed
	}
	frame := make([]byte, n)
	_, err = io.ReadFull(r, frame)
	return frame, err
}
