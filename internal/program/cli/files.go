package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// FilesError says that a process may not open as many files (sockets included) as it needs.
type FilesError struct {
	What string // what needs them
	Need int
	Have uint64 // the limit, after it was raised as far as the process may
}

func (e *FilesError) Error() string {
	return fmt.Sprintf("%s needs %d open files, the limit is %d: raise it with `ulimit -n %d` in the shell or "+
		"LimitNOFILE=%d in the systemd unit",
		e.What, e.Need, e.Have, e.Need, e.Need)
}

// NeedFiles raises the limit of open files as far as the process may, and fails with a *FilesError when fewer than n
// can be open. what names the reason: "--concurrency 8192".
func NeedFiles(n int, what string) error {
	raiseErr := RaiseFiles()
	have, ok := FileLimit()
	if !ok || n < 0 || uint64(n) <= have {
		return nil
	}
	err := &FilesError{What: what, Need: n, Have: have}
	if raiseErr != nil {
		return fmt.Errorf("%w (%w)", err, raiseErr)
	}
	return err
}

// ReadSecret is what a file holds, without the line end that editors put there.
func ReadSecret(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	s := strings.TrimRight(string(b), "\r\n")
	if s == "" {
		return "", errors.New("the file is empty")
	}
	return s, nil
}
