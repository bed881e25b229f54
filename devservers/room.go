package main

import (
	"errors"
	"fmt"
	"os"
)

// etcdRoom is what an etcd takes at its start: two segments of its log, its database, and some for its first minutes.
const etcdRoom = 16 << 20

// hasRoom writes so many bytes into dir and takes them away again: etcd itself would panic. It makes dir when it is not
// there, as etcd does, and takes that away too when there is no room.
func hasRoom(dir string, bytes int) (err error) {
	_, missing := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	f, err := os.CreateTemp(dir, "room-")
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	block := make([]byte, 1<<20)
	for left := bytes; left > 0 && err == nil; left -= len(block) {
		_, err = f.Write(block[:min(left, len(block))])
	}
	// Close last: some file systems say only there that the disk is full.
	if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err == nil {
		return nil
	}
	if missing != nil {
		_ = os.Remove(dir)
	}
	return fmt.Errorf("etcd needs %d MiB for its data: free them, or name another folder with --data-dir or TMPDIR: %w",
		bytes>>20, err)
}
