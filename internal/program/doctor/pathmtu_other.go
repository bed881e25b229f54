//go:build !linux

package doctor

import "context"

// pathMTU cannot be asked for here.
func pathMTU(context.Context, string) (mtu int, ip string, ok bool) { return 0, "", false }
