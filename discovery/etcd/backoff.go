package etcd

import (
	"context"
	"math/rand/v2"
	"time"
)

const delayMin, delayMax = 50 * time.Millisecond, 2 * time.Second

// backoffDelay grows from delayMin to delayMax. Each wait is half fixed and half random, so that many processes that
// lost the same etcd do not come back at the same moment.
type backoffDelay struct{ next time.Duration }

func (b *backoffDelay) reset() { b.next = 0 }

func (b *backoffDelay) wait(ctx context.Context) {
	b.next = min(max(2*b.next, delayMin), delayMax)
	sleep(ctx, b.next/2+rand.N(b.next/2+1))
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
