package deploytest

import (
	"strconv"
	"testing"
)

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func itoa(n int) string { return strconv.Itoa(n) }

func orTCP(proto string) string {
	if proto == "" {
		return "tcp"
	}
	return proto
}
