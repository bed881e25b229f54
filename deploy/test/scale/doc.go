// Package scale simulates the control plane of a large cluster: many worker processes that register in a real etcd and
// take requests from a real NATS, each with connections and a lease of its own, all in one test process. docs/scale.md
// has what it measured.
//
//	LANEWAY_SCALE_NODES=5000 go test -v -timeout 20m ./scale    5,000 workers, each a process of its own
//
// LANEWAY_SCALE_LEASE_TTL=60s is what --lease-ttl 60s is to the programs, and LANEWAY_SCALE_LINKS=512 the size of
// TestIdleLinks. Without the variables 79 processes of 64 workers register.
package scale
