package zktest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

const envImage = "ZKTEST_IMAGE"

// images are the ones that are looked for when $ZKTEST_IMAGE is not set: the
// official one, and the one that scripts/zkimage builds.
var images = []string{"zookeeper:3.9", "zkrecipes-zookeeper:1"}

// dockerTimeout bounds one call of the docker command.
const dockerTimeout = 30 * time.Second

// Docker is an engine on this machine with an image of ZooKeeper.
type Docker struct {
	Command string // path of the docker command
	Image   string // its name or id; the engine has it
	User    string // uid:gid that own, outside, what a container writes as this user

	// CgroupParent is where containers go, empty for the engine's choice. The
	// engine puts them below a group of its own. Where that stands beside the
	// processes of this machine, not beside a group of them, all containers
	// together get the time of one thread, and under load a server that is to
	// answer within a tick does not.
	CgroupParent string
}

// CPUShares, of a container in CgroupParent: the time of as many threads as are
// busy in a server, a thread having 1024.
const CPUShares = 8192

// FindDocker looks for a Docker engine that has $ZKTEST_IMAGE, or without that
// variable the official image or the one that scripts/zkimage builds. It starts
// no container, pulls nothing and builds nothing.
//
// The error wraps [ErrNotFound] and says what to do.
func FindDocker() (Docker, error) {
	if runtime.GOOS != "linux" {
		// Elsewhere containers run in a machine of their own, whose loopback and processes are not the ones here.
		return Docker{}, fmt.Errorf("%w: containers share this machine's network on Linux only; use a local installation", ErrNotFound)
	}
	command, err := exec.LookPath("docker")
	if err != nil {
		return Docker{}, fmt.Errorf("%w: no docker command in the path; install Docker, or use a local installation", ErrNotFound)
	}
	d := Docker{Command: command, User: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())}
	options, err := d.run("info", "--format", "cgroup={{.CgroupDriver}}{{.CgroupVersion}} {{.SecurityOptions}}")
	if err != nil {
		return Docker{}, fmt.Errorf("%w: the Docker engine does not answer: %w", ErrNotFound, err)
	}
	if strings.Contains(options, "name=rootless") {
		d.User = "0:0" // the root of a rootless engine's containers is whoever runs the engine
	}
	if strings.Contains(options, "cgroup=cgroupfs1 ") {
		d.CgroupParent = "/"
	}
	wanted := images
	if named := os.Getenv(envImage); named != "" {
		wanted = []string{named}
	}
	for _, d.Image = range wanted {
		if _, err = d.run("image", "inspect", "--format", "{{.Id}}", d.Image); err == nil {
			return d, nil
		}
	}
	return Docker{}, fmt.Errorf("%w: the Docker engine has no image %s: run scripts/zkimage, which pulls or builds one, or make test, which does so first", ErrNotFound, strings.Join(wanted, " or "))
}

func (d Docker) String() string { return "ZooKeeper in the image " + d.Image }

// run runs the docker command and returns what it prints. Its errors carry what
// it complains of.
func (d Docker) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dockerTimeout)
	defer cancel()
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, d.Command, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = apart() // a Ctrl-C is answered by this process, in order
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(complaints.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// start makes containers a backend.
func (d Docker) start(set *settings, dir, log string) (process, error) {
	label, err := d.Label()
	if err != nil {
		return nil, err
	}
	flags := jvmFlags(set)
	// zkServer.sh lets the shell split $JVMFLAGS.
	if i := slices.IndexFunc(flags, func(f string) bool { return strings.ContainsAny(f, " \t\n*?[") }); i >= 0 {
		return nil, fmt.Errorf("zktest: %q: a system property of a server in a container may hold no blank and none of *?[", flags[i])
	}
	return startContainer(d, container{
		label: label,
		dir:   dir,
		env:   []string{"ZOOCFGDIR=" + dir, "JMXDISABLE=true", "JVMFLAGS=" + strings.Join(flags, " ")},
	}, log)
}
