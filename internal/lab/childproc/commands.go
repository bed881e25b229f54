package childproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Commands hands a child's commands to do until in ends (nil), ctx does (its cause), or do fails.
func Commands[M Message](ctx context.Context, in io.Reader, do func(M) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	commands := make(chan M)
	ended := make(chan error, 1)
	go func() { // ends with in, or with the process: a read of standard input cannot be given up
		dec := json.NewDecoder(in)
		for {
			var m M
			if err := dec.Decode(&m); err != nil {
				ended <- err
				return
			}
			select {
			case commands <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("commands from the parent: %w", err)
		case m := <-commands:
			if err := do(m); err != nil {
				return err
			}
		}
	}
}
