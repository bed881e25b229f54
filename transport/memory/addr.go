package memory

// Addr is the address of an endpoint or of a lane's end, in the form host:port.
type Addr string

// Network is always "memory".
func (Addr) Network() string { return "memory" }

// String is the address as it is dialled.
func (a Addr) String() string { return string(a) }
