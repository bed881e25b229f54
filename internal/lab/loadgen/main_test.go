package loadgen

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// listenEnv makes the test binary a process that listens and says where, until its standard input ends.
const listenEnv = "LGTEST_LISTEN"

func listen() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	l.Close()
}

func TestMain(m *testing.M) {
	if itl := os.Getenv(tickServerEnv); itl != "" { // this process is the server of BenchmarkClients
		d, err := time.ParseDuration(itl)
		if err != nil {
			panic(err)
		}
		tickServer(d)
		return
	}
	if os.Getenv(listenEnv) != "" { // this process is the server of TestSharedCores
		listen()
		return
	}
	goleak.VerifyTestMain(m)
}
