package zktest

import "strconv"

// Op is the kind of a frame: ZooKeeper's number of the operation for a request
// and for the reply to it, or one of the names made up here.
type Op int32

// The kinds of frames, by the names that ZooKeeper's own sources use.
const (
	// OpUnknown is a frame too short to tell, or a reply to no known request.
	OpUnknown Op = 0

	OpCreate          Op = 1
	OpDelete          Op = 2
	OpExists          Op = 3
	OpGetData         Op = 4
	OpSetData         Op = 5
	OpGetACL          Op = 6
	OpSetACL          Op = 7
	OpGetChildren     Op = 8
	OpSync            Op = 9
	OpPing            Op = 11
	OpGetChildren2    Op = 12
	OpCheck           Op = 13
	OpMulti           Op = 14
	OpCreate2         Op = 15
	OpReconfig        Op = 16
	OpCheckWatches    Op = 17
	OpRemoveWatches   Op = 18
	OpCreateContainer Op = 19
	OpDeleteContainer Op = 20
	OpCreateTTL       Op = 21
	OpMultiRead       Op = 22
	OpAuth            Op = 100
	OpSetWatches      Op = 101
	OpSASL            Op = 102
	OpGetEphemerals   Op = 103
	OpGetAllChildren  Op = 104 // getAllChildrenNumber
	OpSetWatches2     Op = 105
	OpAddWatch        Op = 106
	OpWhoAmI          Op = 107
	OpClose           Op = -11

	// OpConnect is the first frame of a connection, which carries no number.
	OpConnect Op = -100
	// OpEvent is a watch event; only the server sends it.
	OpEvent Op = -101
)

var opNames = map[Op]string{
	OpUnknown:         "unknown",
	OpCreate:          "create",
	OpDelete:          "delete",
	OpExists:          "exists",
	OpGetData:         "getData",
	OpSetData:         "setData",
	OpGetACL:          "getACL",
	OpSetACL:          "setACL",
	OpGetChildren:     "getChildren",
	OpSync:            "sync",
	OpPing:            "ping",
	OpGetChildren2:    "getChildren2",
	OpCheck:           "check",
	OpMulti:           "multi",
	OpCreate2:         "create2",
	OpReconfig:        "reconfig",
	OpCheckWatches:    "checkWatches",
	OpRemoveWatches:   "removeWatches",
	OpCreateContainer: "createContainer",
	OpDeleteContainer: "deleteContainer",
	OpCreateTTL:       "createTTL",
	OpMultiRead:       "multiRead",
	OpAuth:            "auth",
	OpSetWatches:      "setWatches",
	OpSASL:            "sasl",
	OpGetEphemerals:   "getEphemerals",
	OpGetAllChildren:  "getAllChildrenNumber",
	OpSetWatches2:     "setWatches2",
	OpAddWatch:        "addWatch",
	OpWhoAmI:          "whoAmI",
	OpClose:           "closeSession",
	OpConnect:         "connect",
	OpEvent:           "event",
}

// String is the operation's name in ZooKeeper, or op(n) for an unknown n.
func (o Op) String() string {
	if name, ok := opNames[o]; ok {
		return name
	}
	return "op(" + strconv.Itoa(int(o)) + ")"
}

// startsWithPath tells which requests have a path right after the header.
func (o Op) startsWithPath() bool {
	switch o {
	case OpCreate, OpDelete, OpExists, OpGetData, OpSetData, OpGetACL, OpSetACL,
		OpGetChildren, OpSync, OpGetChildren2, OpCheck, OpCreate2, OpCheckWatches,
		OpRemoveWatches, OpCreateContainer, OpDeleteContainer, OpCreateTTL,
		OpGetEphemerals, OpGetAllChildren, OpAddWatch:
		return true
	}
	return false
}
