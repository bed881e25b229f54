// Package doctor is the command doctor of the programs: it looks whether this machine, this network and the servers fit
// the settings that the program would run with, before it does, and says what to change. It uses what the program uses:
// real sockets, real handshakes with every port, the servers' own answers. It leaves nothing behind, but for a moment
// it binds a worker's ports and offers a worker of a random name at NATS.
package doctor
