package zktest

// Direction says which way bytes go through a proxy.
type Direction uint8

// The directions. None is what heals: BlackHole(None), Stall(None).
const (
	None     Direction = 0
	ToServer Direction = 1 << 0
	ToClient Direction = 1 << 1
	Both               = ToServer | ToClient
)

// String names the direction.
func (d Direction) String() string {
	switch d {
	case None:
		return "none"
	case ToServer:
		return "to server"
	case ToClient:
		return "to client"
	case Both:
		return "both"
	}
	return "unknown direction"
}
