package zktest

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// backend is what the servers of an ensemble run in: the local installation, or
// containers. Member and Ensemble know no difference beyond this.
type backend interface {
	// start starts the server whose configuration is in dir, which both sides
	// see under this name, with its output appended to the file log.
	start(set *settings, dir, log string) (process, error)

	// String is what to tell people.
	String() string
}

// process is one run of a server, from its start to its end. Whoever calls a
// method other than ended holds the server's turn.
type process interface {
	ended() bool // it has ended, and nothing of it holds a port or a file

	kill()      // at once, paused or not; waits for the end
	terminate() // asks it to end, paused or not; waits for the end

	pause() error // stands still when this returns
	resume() error

	pid() int // of the child of this process that it is or that stands for it
}

// findBackend finds what to launch servers with. source is what $ZKTEST_REAL
// insists on, and without that a local installation comes first: Docker costs a
// third of a second at every start.
func findBackend(source string) (backend, error) {
	if source == sourceDocker {
		return asBackend(FindDocker())
	}
	inst, err := asBackend(Find())
	if err == nil || source == sourceLocal || os.Getenv("ZOOKEEPER_HOME") != "" {
		return inst, err // whoever set the variable means that one
	}
	containers, dockerErr := asBackend(FindDocker())
	if dockerErr != nil {
		return nil, errors.Join(err, dockerErr)
	}
	return containers, nil
}

// asBackend keeps a failed search from being a backend.
func asBackend[R backend](r R, err error) (backend, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Describe says what [Launch] would start, such as "ZooKeeper 3.8.0". It starts
// nothing. Errors are those of Launch when there is nothing to run.
func Describe() (string, error) {
	source, err := launchSource()
	if err != nil {
		return "", err
	}
	r, err := findBackend(source)
	if err != nil {
		return "", err
	}
	return r.String(), nil
}

// launchSource is realSource, for who wants servers of their own.
func launchSource() (string, error) {
	source, err := realSource()
	if err == nil && source == sourceAddr {
		err = fmt.Errorf("%w; $%s=%s leaves only servers from outside, unset it or set it to %s or %s",
			ErrNotOwned, envReal, sourceAddr, sourceLocal, sourceDocker)
	}
	return source, err
}

// start makes a local installation a backend.
func (inst Install) start(set *settings, dir, log string) (process, error) {
	args := append(jvmFlags(set), classPath(inst, dir)...)
	c, err := startChild(childSpec{name: inst.Java, args: append(args, mainClass, configFile(dir)), dir: dir, log: log})
	if err != nil {
		return nil, err
	}
	return &java{c}, nil
}

func (inst Install) String() string { return strings.TrimSpace("ZooKeeper " + inst.Version) }
