package main

import (
	_ "github.com/nats-io/nats-server/v2/server"
	_ "go.etcd.io/etcd/server/v3/embed"
)

func main() {}
