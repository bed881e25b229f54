package planepage

import (
	"strings"

	"github.com/laneway-ai/laneway/transport"
)

// Socket is what a process says of one of its sockets, in the words of a run report. What its plane does not have is
// left out.
type Socket struct {
	Process     string `json:"process,omitempty"`
	Role        string `json:"role,omitempty"` // lane or endpoint
	Port        int    `json:"port"`
	RecvAsked   *int64 `json:"recv_asked,omitempty"`
	RecvGranted *int64 `json:"recv_granted,omitempty"`
	SendAsked   *int64 `json:"send_asked,omitempty"`
	SendGranted *int64 `json:"send_granted,omitempty"`
	GRO         *bool  `json:"gro,omitempty"`
	GSO         *bool  `json:"gso,omitempty"`
}

// SocketOf is what a transport says of a socket.
func SocketOf(process string, k transport.SocketInfo) Socket {
	size := func(n int) *int64 {
		if n <= 0 {
			return nil
		}
		return new(int64(n))
	}
	s := Socket{
		Process: process, Role: k.Role, Port: k.Port,
		RecvAsked: size(k.RecvAsked), RecvGranted: size(k.RecvGranted),
		SendAsked: size(k.SendAsked), SendGranted: size(k.SendGranted),
	}
	if strings.HasPrefix(k.Plane, transport.PlaneQUIC) {
		s.GRO, s.GSO = new(k.GRO), new(k.GSO)
	}
	return s
}
