package etcd

import (
	"context"
	"errors"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/laneway-ai/laneway/discovery"
)

const (
	// batchSize is how many records go into one transaction; etcd takes 128 operations by default.
	batchSize = 64
	// putTries bounds how often a transaction is tried again because a record changed under it.
	putTries = 10
)

// errUnsettled says that the records kept changing while they were to be put.
var errUnsettled = errors.New("etcd: the records kept changing while they were written")

// put makes all records hang on the present lease. Records that another live node holds are left alone; the error is
// then a *ConflictError for the first of them, and the others are in place. claim: see judge.
func (g *registration) put(ctx context.Context, claim bool) error {
	var conflict error
	for rest := g.records; len(rest) > 0; {
		batch := rest[:min(batchSize, len(rest))]
		rest = rest[len(batch):]
		err := g.putBatch(ctx, batch, claim)
		var c *ConflictError
		switch {
		case err == nil:
		case errors.As(err, &c):
			if conflict == nil {
				conflict = err
			}
		default:
			return err
		}
	}
	return conflict
}

// putBatch writes a batch in one transaction when it is all new, which is nearly always so; else it looks first at what
// is there.
func (g *registration) putBatch(ctx context.Context, batch []record, claim bool) error {
	lease := g.leaseID()
	revs := make(map[string]int64) // the revision of what is to be replaced; 0 where there is nothing
	var conflict error
	for range putTries {
		if len(batch) == 0 {
			return conflict
		}
		ifs := make([]clientv3.Cmp, 0, len(batch))
		puts := make([]clientv3.Op, 0, len(batch))
		gets := make([]clientv3.Op, 0, len(batch))
		for _, rec := range batch {
			ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(rec.key), "=", revs[rec.key]))
			puts = append(puts, clientv3.OpPut(rec.key, rec.value, clientv3.WithLease(lease)))
			gets = append(gets, clientv3.OpGet(rec.key))
		}
		cctx, cancel := g.r.call(ctx)
		resp, err := g.r.cli.Txn(cctx).If(ifs...).Then(puts...).Else(gets...).Commit()
		cancel()
		if err != nil {
			return err
		}
		if resp.Succeeded {
			return conflict
		}

		todo := make([]record, 0, len(batch))
		for i, rec := range batch {
			var kv *mvccpb.KeyValue
			if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
				kv = kvs[0]
			}
			switch v, err := judge(rec, kv, lease, claim); v {
			case write:
				revs[rec.key] = 0
				if kv != nil {
					revs[rec.key] = kv.ModRevision
				}
				todo = append(todo, rec)
			case refused:
				if conflict == nil {
					conflict = err
				}
			case leave:
			}
		}
		batch = todo
	}
	return errUnsettled
}

// verdict is what to do about a record that is there.
type verdict int

const (
	leave   verdict = iota // it is in place, or a newer registration of this node has it
	write                  // put ours
	refused                // another live node has it
)

// judge is the rule of the package comment. claim says that this is the first time: then an earlier life gives way.
// Later, a record that another registration has put over ours is left to it.
func judge(rec record, kv *mvccpb.KeyValue, lease clientv3.LeaseID, claim bool) (verdict, error) {
	if kv == nil || kv.Lease == 0 {
		return write, nil
	}
	if kv.Lease == int64(lease) {
		if string(kv.Value) == rec.value {
			return leave, nil
		}
		return write, nil
	}
	there, err := discovery.DecodeWorker(string(kv.Key), kv.Value)
	switch {
	case err != nil:
		return write, nil
	case claim && (there.Node.ID == rec.nodeID || rec.name != "" && there.Node.Name == rec.name):
		return write, nil
	case there.Node.ID == rec.nodeID:
		return leave, nil
	}
	return refused, &ConflictError{WorkerID: rec.id, NodeID: there.Node.ID, NodeName: there.Node.Name}
}
