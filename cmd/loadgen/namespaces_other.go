//go:build !linux

package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/laneway-ai/laneway/internal/lab/netns"
)

func (f *sideFlags) inNamespaces(context.Context, *slog.Logger) error {
	return fmt.Errorf("--netns: %w", netns.Check())
}
