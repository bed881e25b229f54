package transport

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestCheckAddress(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:7000": "", "192.0.2.7:1": "", "100.64.0.1:65535": "", "[fd00::1]:7000": "", "[2001:db8::1]:7000": "",
		"host:7000": "", "host.example.:7000": "",
		"127.0.0.1:7000": "", "[::1]:7000": "", "localhost:7000": "", "mem.local:1024": "", "10.0.0.1": "",
		"fd00::1": "", "[fd00::1]": "", "node_1": "",
		"0.0.0.0:7000": AddressUnspecified, "[::]:7000": AddressUnspecified, ":7000": AddressUnspecified,
		"": AddressUnspecified, "::": AddressUnspecified, "[::ffff:0.0.0.0]:1": AddressUnspecified,
		"169.254.0.1:7000": AddressLinkLocal, "169.254.169.254": AddressLinkLocal, "[fe80::1]:7000": AddressLinkLocal,
		"[febf::1]:7000": AddressLinkLocal, "[fe80::1%eth0]:7000": AddressLinkLocal, "fe80::1%eth0": AddressLinkLocal,
		"[::ffff:169.254.1.1]:7000": AddressLinkLocal,
		"224.0.0.1:7000":            AddressMulticast, "239.255.255.255": AddressMulticast,
		"[ff02::1]:7000":       AddressMulticast,
		"[ff0e::1]:7000":       AddressMulticast,
		"255.255.255.255:7000": AddressReserved, "240.0.0.1:7000": AddressReserved, "0.1.2.3:7000": AddressReserved,
		"[100::1]:7000": AddressReserved,
		"10.0.0.1:0":    AddressMalformed, "10.0.0.1:65536": AddressMalformed, "10.0.0.1:http": AddressMalformed,
		"host:1:2": AddressMalformed, "a b:1": AddressMalformed, "a/b": AddressMalformed,
	} {
		err := CheckAddress(address)
		var bad *AddressError
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", address, err)
		case want != "" && (!errors.As(err, &bad) || bad.Reason != want || bad.Address != address ||
			!strings.Contains(err.Error(), "AdvertiseAddr")):
			t.Errorf("%q: %v, expected %s", address, err, want)
		}
	}
}

func TestCheckLoopback(t *testing.T) {
	for _, address := range []string{"127.0.0.1:7000", "127.9.9.9:1", "[::1]:7000", "localhost:7000", "LocalHost:1",
		"[::ffff:127.0.0.1]:7"} {
		var bad *AddressError
		if err := CheckLoopback(address, "theirs", "ours"); !errors.As(err, &bad) || bad.Reason != AddressLoopback ||
			bad.Address != address {
			t.Errorf("%s of another stack: %v", address, err)
		}
		for _, pair := range [][2]string{{"same", "same"}, {"", "ours"}, {"theirs", ""}, {"", ""}} {
			if err := CheckLoopback(address, pair[0], pair[1]); err != nil {
				t.Errorf("%s of stack %q at %q: %v", address, pair[0], pair[1], err)
			}
		}
	}
	for _, address := range []string{"10.0.0.1:7000", "[fd00::1]:7000", "host:7000", "localhost.example:7000"} {
		if err := CheckLoopback(address, "theirs", "ours"); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestLocalNetwork(t *testing.T) {
	a, b := LocalNetwork(), LocalNetwork()
	if a != b {
		t.Errorf("%q, then %q", a, b)
	}
	if _, err := os.Readlink("/proc/self/ns/net"); runtime.GOOS == "linux" && err == nil && len(a) != 16 {
		t.Errorf("%q on Linux", a)
	}
}

func TestFileLimit(t *testing.T) {
	if n, ok := FileLimit(); ok && n < 3 {
		t.Errorf("a limit of %d with standard files open", n)
	} else if !ok && runtime.GOOS == "linux" {
		t.Skip("no limit here")
	}
}
