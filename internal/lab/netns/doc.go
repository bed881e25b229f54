// Package netns makes network namespaces that are joined by a bridge, each with one interface of a real MTU, so that
// processes of one machine have counters of their own and talk over a path that is not loopback. Linux only; it needs
// root and the command ip of iproute2.
//
// The bridge is in a namespace of its own, the hub. Nothing is added to the network of the host: no interface, no
// address, no route. The hub's address is how the maker reaches the nodes (Node.Dial), and where servers outside can be
// offered to them (Forward).
//
// A batch that UDP_SEGMENT or TSO sends crosses veth and bridge whole: it is counted as one packet there, and no MTU on
// the way cuts or drops it. Where packets are to be held to an MTU one by one: Node.IP(ctx, "link set eth0 gso_max_segs
// 1").
//
// Every namespace has a name, which ip netns lists, so that a run can be looked into: ip netns exec NAME ss -uan. The
// name carries the maker's process id and start time: what a killed maker left behind is found and removed by the next
// one.
package netns
