// Package core is the engine under every recipe: it owns the connection (or adopts one), knows in which epoch a request was answered, proves by a
// clock of its own that a session is alive, and guarantees that a znode whose owner has gone is removed.
//
// # Who may change what
//
// A Contact is what the wire has shown: epoch, negotiated timeout, the send time of the last request that proves the session alive. Only wires (the
// net.Conns that go-zookeeper reads and writes) change it, before the client sees the bytes that caused the change. An adopted connection that was not
// made with a Track has no wires: its Contact is fed by looking at the connection, and by the outcome of the engine's own requests.
//
// A source is where the connection comes from, owned or adopted. It tells the engine when the gate may open, and ends what is to be ended.
//
// An Engine is what may be done: whether the gate is open, which client is current, which sessions are over. Only its tracker goroutine changes that,
// from a queue without a bound, so that neither the client's callback nor a user's hook can hold it up.
//
// # Epochs
//
// An Epoch is a ZooKeeper session id and a connection number. The number grows while the connect reply is read, before the client can use the
// connection, so a request that found the same epoch before and after was answered on that one connection, and two requests in one epoch were
// answered in the order of one server. Without wires less is true: see Span.SameConn.
package core
