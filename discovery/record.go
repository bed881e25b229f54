package discovery

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Schema is the version of Worker that this code writes. Records of another schema are refused by name, not guessed at.
const Schema = 1

// Node is what a frontend must know to reach a worker process: who it is and where its endpoints are.
type Node struct {
	// ID is the node's identity, 32 hex digits; it changes at every start of the process.
	ID string `json:"id"`
	// Name is the process for people: it stands in reports and metrics. Not unique.
	Name string `json:"name,omitempty"`
	// Planes are the planes it listens on, in its order of preference.
	Planes []Plane `json:"planes"`
	// Network names its network stack (transport.LocalNetwork) when it advertises a loopback address: such an address
	// is only of use to processes on the same stack. Empty: not known.
	Network string `json:"network,omitempty"`
	// WireMin and WireMax are the protocol versions it speaks.
	WireMin uint16 `json:"wire_min"`
	WireMax uint16 `json:"wire_max"`
}

// Plane is one plane of a node and the addresses of its server endpoints; lane k dials endpoint (offset + k) mod n.
type Plane struct {
	Name      string   `json:"name"`      // tcp, tls, quic, memory
	Endpoints []string `json:"endpoints"` // host:port, at least one
}

// Worker is the record of one worker (engine). Several workers may share a node.
type Worker struct {
	Schema int      `json:"schema"`
	ID     string   `json:"id"` // unique in its namespace: letters, digits, '-' and '_', at most 128
	Models []string `json:"models"`
	Node   Node     `json:"node"`
	// MaxRunning is how many requests the engine runs at once, 0 when it does not say. A router may use it.
	MaxRunning int `json:"max_running,omitempty"`
}

// errNotUTF8 is what is wrong with text that metrics and JSON cannot hold.
var errNotUTF8 = errors.New("is not UTF-8 text: write it in UTF-8")

// validID keeps ids usable as an etcd key segment and as a NATS subject token.
var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// ValidName says whether s may be a worker id or a namespace.
func ValidName(s string) bool { return validID.MatchString(s) }

// RecordError says which field of which record does not hold. The last good record of the same key stays in force.
type RecordError struct {
	Key   string // registry key, or the file
	Field string
	Err   error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("discovery: record %q: %s: %s", clip(e.Key, maxQuotedKey), e.Field,
		clip(fmt.Sprint(e.Err), maxReason))
}

// Bounds of an error's text: what is wrong in a registry goes into a log line, however large it is there.
const (
	maxQuoted    = 64
	maxQuotedKey = 512 // "/laneway/v1/", a namespace, a worker id; or a path
	maxReason    = 512
)

// clip shortens s, and says so.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}

func quoted(s string) string { return strconv.Quote(clip(s, maxQuoted)) }

func (e *RecordError) Unwrap() error { return e.Err }

// Encode is the record as it stands in a registry.
func (w Worker) Encode() ([]byte, error) {
	w.Schema = Schema
	if err := w.validate("(local)"); err != nil {
		return nil, err
	}
	return json.Marshal(w)
}

// DecodeWorker reads and checks a record; key only names it in the error, which is a *RecordError.
func DecodeWorker(key string, data []byte) (Worker, error) {
	var w Worker
	if !utf8.Valid(data) { // encoding/json would take U+FFFD for each such byte: a name that nobody has given
		return Worker{}, &RecordError{Key: key, Field: "encoding", Err: errNotUTF8}
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return Worker{}, &RecordError{Key: key, Field: "json", Err: err}
	}
	if w.Schema != Schema {
		return Worker{}, &RecordError{Key: key, Field: "schema", Err: fmt.Errorf("is %d, this version reads %d",
			w.Schema, Schema)}
	}
	if err := w.validate(key); err != nil {
		return Worker{}, err
	}
	return w, nil
}

func (w Worker) validate(key string) error {
	bad := func(field, format string, a ...any) error {
		return &RecordError{Key: key, Field: field, Err: fmt.Errorf(format, a...)}
	}
	if !ValidName(w.ID) {
		return bad("id", "%s is not 1 to 128 letters, digits, '-' or '_'", quoted(w.ID))
	}
	if len(w.Models) == 0 {
		return bad("models", "is empty")
	}
	for _, m := range w.Models {
		if m == "" || len(m) > 256 {
			return bad("models", "%s is not 1 to 256 bytes", quoted(m))
		}
		if !utf8.ValidString(m) {
			return bad("models", "%s %w", quoted(m), errNotUTF8)
		}
	}
	if w.MaxRunning < 0 {
		return bad("max_running", "%d is negative", w.MaxRunning)
	}
	return w.Node.validate(key)
}

// Validate checks a node's record.
func (n Node) Validate() error { return n.validate(n.Name) }

func (n Node) validate(key string) error {
	bad := func(field, format string, a ...any) error {
		return &RecordError{Key: key, Field: field, Err: fmt.Errorf(format, a...)}
	}
	if _, err := hex.DecodeString(n.ID); err != nil || len(n.ID) != 32 {
		return bad("node.id", "%s is not 32 hex digits", quoted(n.ID))
	}
	if len(n.Name) > 256 {
		return bad("node.name", "is %d bytes, expected at most 256", len(n.Name))
	}
	if !utf8.ValidString(n.Name) {
		return bad("node.name", "%s %w", quoted(n.Name), errNotUTF8)
	}
	if len(n.Network) > 256 {
		return bad("node.network", "is %d bytes, expected at most 256", len(n.Network))
	}
	if !utf8.ValidString(n.Network) {
		return bad("node.network", "%s %w", quoted(n.Network), errNotUTF8)
	}
	if len(n.Planes) == 0 {
		return bad("node.planes", "is empty")
	}
	seen := make(map[string]bool, len(n.Planes))
	for _, p := range n.Planes {
		if p.Name == "" || seen[p.Name] {
			return bad("node.planes.name", "%s is empty or stands there twice", quoted(p.Name))
		}
		if !utf8.ValidString(p.Name) {
			return bad("node.planes.name", "%s %w", quoted(p.Name), errNotUTF8)
		}
		seen[p.Name] = true
		if len(p.Endpoints) == 0 || len(p.Endpoints) > 64 {
			return bad("node.planes.endpoints", "plane %s lists %d endpoints, expected 1 to 64",
				clip(p.Name, maxQuoted), len(p.Endpoints))
		}
		for _, e := range p.Endpoints {
			if err := checkEndpoint(e); err != nil {
				return bad("node.planes.endpoints", "plane %s: %w", clip(p.Name, maxQuoted), err)
			}
		}
	}
	if n.WireMin == 0 || n.WireMin > n.WireMax {
		return bad("node.wire_min", "versions %d to %d are no range", n.WireMin, n.WireMax)
	}
	return nil
}

func checkEndpoint(e string) error {
	host, port, err := net.SplitHostPort(e)
	if err != nil {
		return fmt.Errorf("endpoint %s is not host:port", quoted(e))
	}
	if p, err := strconv.Atoi(port); err != nil || p < 1 || p > 65535 {
		return fmt.Errorf("endpoint %s: port is not 1 to 65535", quoted(e))
	}
	if !utf8.ValidString(host) {
		return fmt.Errorf("endpoint %s %w", quoted(e), errNotUTF8)
	}
	if host == "" {
		return errors.New("endpoint " + quoted(e) + " has no host")
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("endpoint %s is a wildcard, not an address that can be dialled", quoted(e))
	}
	return nil
}
