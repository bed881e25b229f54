// Package devserver runs real etcd and NATS servers as child processes that can be paused, killed and started again:
// for cmd/cluster and for tests (package devtest). The servers come from the devservers module, whose binary Build
// makes once and keeps in the user's cache.
package devserver
