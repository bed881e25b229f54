// Package cluster runs a whole cluster on one machine: etcd and NATS, worker processes, a frontend and the load
// generator, each a process of its own, so that the processor time of each can be told. Every run has fresh processes
// and a namespace of its own, and ends with nothing left behind.
package cluster
