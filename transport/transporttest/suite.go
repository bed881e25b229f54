// Package transporttest holds every transport to one behaviour. A plane's own tests call Run with a Factory.
package transporttest

import (
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/transport"
)

// Factory makes the nodes of one plane.
type Factory struct {
	// Plane is the name that the transports must give themselves.
	Plane string
	// New makes a transport with an identity of its own. The suite closes it.
	New func(t testing.TB) (transport.Transport, transport.NodeID)
	// Network is what the plane's bytes go over, "tcp" or "udp"; "" for a plane without sockets.
	Network string
	// Bind is where listeners bind, host:0.
	Bind string
	// Silent gives an address on which a dial waits until its context ends.
	Silent func(t testing.TB) string
	// Unfinished begins n handshakes with an endpoint from an address of this host, and then says nothing more until
	// the test ends. nil for a plane without a handshake.
	Unfinished func(t testing.TB, to string, from netip.Addr, n int)
	// Proves says that the plane proves NodeIDs.
	Proves bool
	// ListenerOwnsLanes says that accepted lanes end with their listener (quic).
	ListenerOwnsLanes bool
}

// Run runs the whole suite as sub-tests of t. Every sub-test must leave no goroutine behind.
func Run(t *testing.T, f Factory) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Factory)
	}{
		{"Echo", testEcho},
		{"OrderOfManyWrites", each(testOrder)},
		{"LargeWrite", each(testLargeWrite)},
		{"BothDirectionsAtOnce", testDuplex},
		{"StoppedReaderBlocksWriter", each(testBackpressure)},
		{"HalfClose", each(testHalfClose)},
		{"HalfCloseInMidWrite", each(testHalfCloseMidWrite)},
		{"LocalCloseUnblocksRead", each(testLocalCloseRead)},
		{"LocalCloseUnblocksWrite", each(testLocalCloseWrite)},
		{"RemoteCloseUnblocksRead", each(testRemoteCloseRead)},
		{"RemoteCloseUnblocksWrite", each(testRemoteCloseWrite)},
		{"CloseIsIdempotentAndConcurrent", each(testCloseConcurrent)},
		{"TransportCloseEndsEverything", testTransportClose},
		{"ListenerCloseUnblocksAccept", testListenerClose},
		{"AcceptEndsWithItsContext", testAcceptContext},
		{"AcceptedLanesAfterListenerClose", testLanesAfterListenerClose},
		{"DialToNobody", testDialNobody},
		{"DialEndsWithItsContext", testDialContext},
		{"TransportCloseUnblocksDial", testDialClose},
		{"DialToBadAddress", testDialBadAddress},
		{"RightPinIsProven", testRightPin},
		{"WrongPinIsRefused", testWrongPin},
		{"EndpointsHaveTheirOwnPorts", testEndpoints},
		{"FixedPortRange", testFixedPorts},
		{"PortInUseIsNamed", testPortInUse},
		{"BadBindIsRefused", testBadBind},
		{"PortIsFreeAfterClose", testRebind},
		{"LanesAtOnce", withLanes(testLanesAtOnce)},
		{"BlockedLaneHoldsUpNoOther", withLanes(testBlockedLane)},
		{"FaultInOneLane", withLanes(testFaultInOneLane)},
		{"CutIsNoCleanEnd", testTruncation},
		{"LossyPath", testLossyPath},
		{"Stress", testStress},
		{"64LanesOf1MiB", testManyLanes},
		{"LanesComeAndGo", testChurn},
		{"SocketsAndCounters", testSocketsAndCounters},
		{"TryWriteNeverWaits", testTryWrite},
		{"UnfinishedHandshakesHoldUpNobody", testUnfinishedHandshakes},
		{"OldestHandshakeGoesFirst", testOldestHandshakeGoes},
		{"SilentLanesHoldUpNobody", testSilentLanes},
		{"StrayDatagramsDelayNoOther", testStrayDatagrams},
		{"DoubledDatagramsDelayNoOther", testDoubledDatagrams},
		{"SegmentsOfEveryCount", each(testSegmentCounts)},
		{"SegmentsInOrder", segmented(testOrder)},
		{"SegmentsOfLargeWrite", segmented(testLargeWrite)},
		{"StoppedReaderBlocksSegments", segmented(testBackpressure)},
		{"HalfCloseAfterSegments", segmented(testHalfClose)},
		{"HalfCloseInMidSegments", segmented(testHalfCloseMidWrite)},
		{"LocalCloseUnblocksSegments", segmented(testLocalCloseWrite)},
		{"RemoteCloseUnblocksSegments", segmented(testRemoteCloseWrite)},
		{"CloseDuringSegmentsIsConcurrent", segmented(testCloseConcurrent)},
		{"SegmentsAfterClose", each(testSegmentsAfterClose)},
		{"TryWriteBuffersNeverWaits", testTryWriteBuffers},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			c.run(t, f)
		})
	}
}

// each runs a test of one direction for both directions: from the dialler to the acceptor and with the ends swapped.
func each(run func(t *testing.T, from, to transport.Conn)) func(*testing.T, Factory) {
	return func(t *testing.T, f Factory) {
		t.Run("DiallerToAcceptor", func(t *testing.T) {
			d, a := newRig(t, f, 1).lane(t, 0)
			run(t, d, a)
		})
		t.Run("AcceptorToDialler", func(t *testing.T) {
			d, a := newRig(t, f, 1).lane(t, 0)
			run(t, a, d)
		})
	}
}
