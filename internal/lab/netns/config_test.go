package netns

import (
	"fmt"
	"strings"
	"testing"
)

func TestValidateJoinsAllComplaints(t *testing.T) {
	if err := (Config{Nodes: []string{"a", "worker-0"}, MTU: 1500, IPv6: true}).Validate(); err != nil {
		t.Error(err)
	}
	err := (Config{Nodes: []string{"hub", "a", "a", "A", "-", strings.Repeat("x", 33), "a b"}, MTU: 1000}).Validate()
	for _, want := range []string{`"hub": the name is taken`, `"a": the name is taken`, `node "A"`, `node "-"`,
		`node "xxx`, `node "a b"`, "MTU 1000: use 1280 to 65535"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err := (Config{}).Validate(); err == nil {
		t.Error("no node at all passed")
	}
}

func TestAddressesAreApart(t *testing.T) {
	for i, want := range map[int]string{1: "198.18.0.1 2001:2::1", 255: "198.18.0.255 2001:2::ff",
		1002: "198.18.3.234 2001:2::3ea"} {
		if got := fmt.Sprint(address(prefix4, i), " ", address(prefix6, i)); got != want {
			t.Errorf("number %d is %s, expected %s", i, got, want)
		}
	}
}
