package znode_test

import (
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

func ExampleParse() {
	for _, child := range []string{
		"_c_5f0c1e6a-0c8b-4b5e-9d0e-2f6f5d1b7a3c-lock-0000000007", // Curator
		"_c_5f0c1e6a0c8b4b5e9d0e2f6f5d1b7a3c-lock-0000000008",     // go-zookeeper
		"5f0c1e6a0c8b4b5e9d0e2f6f5d1b7a3c__lock__-2147483648",     // kazoo, in a worn-out directory
		"lock-abc", // somebody's
	} {
		name, ok := znode.Parse(child, znode.LockName, znode.KazooLock)
		fmt.Println(name.Seq, znode.Exhausted(name.Seq), ok)
	}
	// Output:
	// 7 false true
	// 8 false true
	// -2147483648 true true
	// 0 false false
}

func ExampleValidate() {
	fmt.Println(znode.Validate("/locks/orders/"))
	fmt.Println(znode.Validate("locks/orders"))
	// Output:
	// invalid path "/locks/orders/": trailing slash at byte 13
	// invalid path "locks/orders": relative path: must start with "/"
}
