package interop

import (
	"fmt"
	"os"
)

// With parentRole in its environment, which says where the classes are, the test binary is a parent that has started its children, says their ids and
// waits to be killed.
const parentRole = "INTEROP_TEST_PARENT"

func parent() int {
	classes.dir = os.Getenv(parentRole)
	curator, err := launch(Curator)
	if err == nil {
		var kazoo *Process
		if kazoo, err = launch(Kazoo); err == nil {
			fmt.Fprintln(os.Stdout, curator.cmd.Process.Pid, kazoo.cmd.Process.Pid)
			select {}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
