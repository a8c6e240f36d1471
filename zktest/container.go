package zktest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"
)

// inContainer is what runs in a container: the server, and a loop that passes on
// to it the names of signals that come through standard input. When the input
// ends, because this process closed it or is no more, the server is killed; it
// is the loop, not the docker command outside, that ties the server to us, since
// a container goes on when the command that started it is killed. And a line
// through a pipe is faster than docker kill. What the server says goes to its log
// from inside: on the way through the engine each line would wait for three processes.
const inContainer = `exec 3<&0
zkServer.sh start-foreground "$2" </dev/null >>"$1" 2>&1 3<&- &
server=$!
{
	while read -r signal <&3; do kill -s "$signal" $server; done
	kill -s KILL $server
} 2>/dev/null &
exec 3<&-
wait $server`

// container is a server in a container. The child is docker run, which ends
// after the container.
type container struct {
	*child
	docker Docker
	name   string
	input  *os.File // of the loop
	frozen bool

	label string
	dir   string // seen inside under the same name
	env   []string
}

var containers atomic.Int64

// endTimeout bounds the wait for a server that was told to end.
const endTimeout = 20 * time.Second

func startContainer(d Docker, c container, log string) (*container, error) {
	c.docker = d
	c.name = fmt.Sprintf("zktest-%d-%d-%08x", os.Getpid(), containers.Add(1), rand.Uint32())
	args := []string{
		"run", "--rm", "--interactive", "--pull=never", "--name=" + c.name, "--label=" + c.label,
		// The server binds to the loopback of this machine, as a local one does. Where an engine maps
		// users or labels files, it must not do so here: the files and the network are this machine's.
		"--network=host", "--userns=host", "--security-opt=label=disable", "--user=" + d.User,
		"--mount=type=bind,source=" + c.dir + ",target=" + c.dir, "--workdir=" + c.dir,
		"--log-driver=none",
	}
	if d.CgroupParent != "" {
		args = append(args, "--cgroup-parent="+d.CgroupParent, fmt.Sprint("--cpu-shares=", CPUShares))
	}
	for _, e := range c.env {
		args = append(args, "--env="+e)
	}
	args = append(args, "--entrypoint=/bin/sh", d.Image, "-c", inContainer, "zktest", log, configFile(c.dir))
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c.input = w
	c.child, err = startChild(childSpec{name: d.Command, args: args, dir: c.dir, log: log, stdin: r, after: c.sweep})
	if err != nil {
		w.Close()
		return nil, err
	}
	return &c, nil
}

// sweep runs when docker run has ended. If that was by itself, the container is
// gone; if not, as when somebody kills the command, it may still run for a while.
func (c *container) sweep(end *os.ProcessState) {
	_ = c.input.Close()
	const ofDockerItself = 125
	if end.Exited() && end.ExitCode() != ofDockerItself {
		return
	}
	_, _ = c.docker.run("rm", "--force", "--volumes", c.name) // that it is gone already is an error too
}

// kill closes the input: the loop inside sends SIGKILL. A frozen loop cannot; but
// a container that is killed while frozen does not run again, as a process does not.
func (c *container) kill() {
	if c.frozen {
		_, _ = c.docker.run("kill", "--signal=KILL", c.name) // it may have ended
	}
	_ = c.input.Close()
	c.awaitEnd()
}

// terminate writes first: the signal is the first thing that a paused server meets.
func (c *container) terminate() {
	_, _ = c.input.WriteString("TERM\n") // it may have ended
	if c.frozen {
		_ = c.resume()
	}
	c.awaitEnd()
}

// awaitEnd waits for the end, and forces it if it does not come.
func (c *container) awaitEnd() {
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		_, _ = c.docker.run("rm", "--force", "--volumes", c.name)
		_ = c.cmd.Process.Kill() // in case the engine does not answer
		<-c.done
	}
}

func (c *container) pause() error {
	_, err := c.docker.run("pause", c.name)
	c.frozen = c.frozen || err == nil
	return err
}

func (c *container) resume() error {
	_, err := c.docker.run("unpause", c.name)
	c.frozen = c.frozen && err != nil
	return err
}
