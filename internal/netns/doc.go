// Package netns makes network namespaces that are joined by a bridge, each with one interface of a real MTU, so that processes of one machine
// have counters of their own and talk over a path that is not loopback. Linux only; it needs root and the command ip of iproute2.
//
// The bridge is in a namespace of its own, the hub. Nothing is added to the network of the host: no interface, no address, no route.
// The hub's address is how the maker reaches the nodes (Node.Dial), and where servers outside can be offered to them (Forward).
//
// Every namespace has a name, which ip netns lists, so that a run can be looked into: ip netns exec NAME ss -uan. The name carries the maker's process
// id and start time: what a killed maker left behind is found and removed by the next one.
package netns
