//go:build !linux

package loadgen

import "errors"

const haveEpoll = false

func newEpollClient(*engine) (client, error) {
	return nil, errors.New("the epoll client needs Linux: use the goroutines client")
}
