// Package discovery has the two contracts between a cluster's control plane and the response plane: Registry (who is
// there) and Deliverer (how a request reaches a worker). The packages etcd, nats, static and memory implement them, and
// package discoverytest holds them to one behaviour. Tokens never pass through either.
package discovery
