package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// UnreachableError says that no etcd answered; trying again later may help.
type UnreachableError struct {
	Endpoints []string
	After     time.Duration
	Err       error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("etcd: no answer from %s within %s (Config.Endpoints): %v", shown(e.Endpoints), e.After, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// ConflictError says that another live process holds the record of a worker id.
type ConflictError struct {
	WorkerID string
	NodeID   string // of the holder
	NodeName string // of the holder, may be empty
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("etcd: worker id %q is taken: node %s (name %q) is alive and holds it; give this worker "+
		"another id or end that process", e.WorkerID, e.NodeID, e.NodeName)
}

// errLeaseLost says that etcd does not know the lease (any more).
var errLeaseLost = errors.New("etcd: the lease has run out")

func leaseGone(err error) bool {
	return errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) ||
		errors.Is(err, errLeaseLost)
}

// passing says whether trying again may help: no connection, no leader, no answer in time, an authentication token that
// has run out.
func passing(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rpctypes.ErrInvalidAuthToken) ||
		errors.Is(err, rpctypes.ErrAuthOldRevision) || leaseGone(err) {
		return true
	}
	var coded rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &coded) {
		code = coded.Code()
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal:
		return true
	}
	return false
}
