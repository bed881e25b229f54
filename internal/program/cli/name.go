package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ProcessName is --name, or HOST-PID when that is empty. A host's name may be any bytes; what stands in metrics is
// text.
func ProcessName(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find this host's name: %w (set --name)", err)
	}
	return strings.ToValidUTF8(host, "_") + "-" + strconv.Itoa(os.Getpid()), nil
}
