package base

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func peer(a, b byte) net.Addr {
	return &net.TCPAddr{IP: net.IPv4(10, 0, a, b), Port: 1000 + int(b)}
}

// spread takes n places for strangers, few of each address.
func spread(t *testing.T, p *Places, n int, evict func(i int)) (taken []*Place) {
	t.Helper()
	for i := range n {
		var end func()
		if evict != nil {
			end = func() { evict(i) }
		}
		place := p.Take(peer(byte(i%100), 1), end)
		if place == nil {
			t.Fatalf("no place for the %d. of %d", i+1, n)
		}
		taken = append(taken, place)
	}
	return taken
}

func TestTheOldestUnfinishedGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(new(Known))
		var gone []int
		taken := spread(t, p, strangers, func(i int) { gone = append(gone, i) })
		taken[0].Finish()
		taken[2].Leave()
		taken[2].Leave()
		if p.Take(peer(200, 1), func() {}) == nil {
			t.Error("a place that was left is not free")
		}
		if p.Take(peer(200, 2), func() {}) != nil || p.Taken() != strangers {
			t.Errorf("%d places are taken, in the time in which nobody loses one", p.Taken())
		}
		time.Sleep(PlaceGrace)
		for i := range 3 {
			if p.Take(peer(200, byte(3+i)), func() {}) == nil {
				t.Fatal("nobody gave way")
			}
		}
		if len(gone) != 3 || gone[0] != 1 || gone[1] != 3 || gone[2] != 4 {
			t.Errorf("those who went are %v", gone)
		}
		if taken[0].Evicted() || !taken[1].Evicted() || taken[2].Evicted() || !taken[3].Evicted() {
			t.Error("they do not know it")
		}
		taken[1].Leave() // it is not theirs any more
		if p.Taken() != strangers {
			t.Errorf("%d places are taken", p.Taken())
		}
	})
}

func TestWhatCannotBeEndedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(new(Known))
		spread(t, p, strangers, nil)
		time.Sleep(time.Hour)
		if p.Take(peer(200, 1), nil) != nil {
			t.Error("there is a place more than there are")
		}
	})
}

func TestOneAddressHasItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(new(Known))
		bad := peer(6, 6)
		first := p.Take(bad, func() {})
		for range strangersShare - 1 {
			p.Take(&net.UDPAddr{IP: net.IPv4(10, 0, 6, 6), Port: 7}, func() {})
		}
		if p.Take(bad, func() {}) != nil || p.Taken() != strangersShare {
			t.Errorf("one address has %d places", p.Taken())
		}
		time.Sleep(PlaceGrace)
		other := p.Take(peer(1, 1), func() {})
		if p.Take(bad, func() {}) == nil || !first.Evicted() || other.Evicted() || p.Taken() != strangersShare+1 {
			t.Error("an address beyond its share takes more than its own oldest place")
		}
		other.Leave()
		// What waits for this side has no part in it.
		q := NewPlaces(new(Known))
		for range strangersShare {
			q.Take(bad, nil).Finish()
		}
		if q.Take(bad, nil) == nil {
			t.Error("lanes that are through count as unfinished")
		}
		if n := len(q.pools[0].of); n != 1 {
			t.Errorf("%d addresses have a share", n)
		}
	})
}

func TestKnownAddressesHaveTheirOwnPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known Known
		p := NewPlaces(&known)
		friend := peer(200, 1)
		known.Vouch(friend)
		spread(t, p, strangers, nil)
		if p.Take(peer(200, 2), nil) != nil {
			t.Error("a stranger has a place")
		}
		var taken []*Place
		for range knownsShare {
			place := p.Take(friend, nil)
			if place == nil {
				t.Fatalf("no place for the %d. of a known address", len(taken)+1)
			}
			taken = append(taken, place)
		}
		if p.Take(friend, nil) != nil {
			t.Error("one known address may have all places of the known")
		}
		for _, place := range taken {
			place.Leave()
		}
		if p.Taken() != strangers {
			t.Errorf("%d places are taken", p.Taken())
		}
	})
}

func TestKnownAddressesAreBounded(t *testing.T) {
	var known Known
	host := func(i int) net.Addr { return &net.UDPAddr{IP: net.IPv4(10, 1, byte(i>>8), byte(i))} }
	for i := range maxKnown + 10 {
		known.Vouch(host(i))
		known.Vouch(host(0)) // is named again and again
	}
	if known.order.Len() != maxKnown || len(known.at) != maxKnown {
		t.Errorf("%d and %d are remembered", known.order.Len(), len(known.at))
	}
	if !known.has(Host(host(0))) || known.has(Host(host(1))) || !known.has(Host(host(maxKnown+9))) {
		t.Error("it is not the one that was named longest ago that went")
	}
	known.Vouch(&net.UnixAddr{Name: "x"})
	if known.order.Len() != maxKnown || known.has(Host(nil)) {
		t.Error("what is no IP address is remembered")
	}
}

func TestHost(t *testing.T) {
	same := func(a, b string, want bool) {
		t.Helper()
		x, y := Host(&net.TCPAddr{IP: net.ParseIP(a), Port: 1}), Host(&net.UDPAddr{IP: net.ParseIP(b), Port: 2})
		if (x == y) != want || !x.IsValid() || !y.IsValid() {
			t.Errorf("%s is %v, %s is %v", a, x, b, y)
		}
	}
	same("10.0.0.1", "::ffff:10.0.0.1", true)
	same("10.0.0.1", "10.0.0.2", false)
	same("2001:db8::1", "2001:db8::ffff:1", true)
	same("2001:db8::1", "2001:db8:0:1::1", false)
	same("fe80::1", "fe80::2", false) // of one segment
	same("::1", "::2", true)
}
