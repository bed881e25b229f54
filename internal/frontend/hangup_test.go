package frontend

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rawClient is a connection of HTTP/1 and what is below its TLS, if it has any.
type rawClient struct {
	net.Conn
	tcp *net.TCPConn
}

// raw connects and sends a request of that version, with after behind its body.
func (b *bench) raw(version, body, after string) rawClient {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	c := rawClient{conn, conn.(*net.TCPConn)}
	b.t.Cleanup(func() { conn.Close() })
	if strings.HasPrefix(b.url, "https") {
		c.Conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	if _, err := fmt.Fprintf(c, "POST /v1/chat/completions HTTP/%s\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s%s",
		version, len(body), body, after); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// ways to leave.
var leaving = map[string]func(*net.TCPConn) error{
	"close": (*net.TCPConn).Close, "half-close": (*net.TCPConn).CloseWrite,
	"reset": func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
}

// TestClientThatLeavesIsNoticed holds that the worker's work ends when its client leaves, whatever else the client has
// sent, however it leaves, and whether it has got anything yet.
func TestClientThatLeavesIsNoticed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere net/http's own read finds out, which waits behind bytes that lie unread")
	}
	unread := map[string]string{"nothing": "", "a line break": "\r\n", "junk": strings.Repeat("x", 10_000),
		"a request": fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
			len(chatBody), chatBody)}
	for _, proto := range []string{"HTTP/1.1", "HTTP/1.1 over TLS"} {
		for _, path := range []OutPath{OutAuto, OutPull} {
			for _, body := range []string{chatBody, chatStream} {
				for _, early := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s %s stream=%t early=%t", proto, path, body == chatStream, early),
						func(t *testing.T) {
							for how, leave := range leaving {
								for what, after := range unread {
									p := newPlay()
									waiting := make(chan struct{}, 1)
									b := serveProtocol(t, &scripted{}, proto, func(c *Config) { c.OutPath = path })
									b.backend.open = func(ctx context.Context, _ Call) (Stream, error) {
										defer func() { waiting <- struct{}{} }()
										if !early {
											p.steps <- step{recs: []string{"a"}}
											return p, nil
										}
										waiting <- struct{}{}
										<-ctx.Done()
										return nil, ctx.Err()
									}
									c := b.raw("1.1", body, after)
									<-waiting
									if body == chatStream && !early {
										if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
											t.Fatal(err)
										}
									}
									if err := leave(c.tcp); err != nil {
										t.Fatal(err)
									}
									b.untilOpen(0)
									if !early {
										p.waitFor(t, "killed", p.killed)
										p.waitFor(t, "closed", p.shut)
									}
									b.untilValue(1, requests, "status", "499", "error_type", "cancelled")
									if t.Failed() {
										t.Fatalf("%s after %s", how, what)
									}
								}
							}
						})
				}
			}
		}
	}
}

// TestAnswerThatIsGivenUpIsReset: a client that has closed its sending half counts as one that has left. It can still
// read, and what it reads must not look like an answer, whole or empty; over HTTP/1.0 the end of the connection alone
// would be the end of the answer.
func TestAnswerThatIsGivenUpIsReset(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/1.1 over TLS"} {
		for _, version := range []string{"1.0", "1.1"} {
			for _, body := range []string{chatBody, chatStream} {
				for _, when := range []string{"early", "in mid-stream", "at a panic"} {
					if body == chatBody && when == "in mid-stream" {
						continue
					}
					t.Run(fmt.Sprintf("%s HTTP/%s stream=%t %s", proto, version, body == chatStream, when),
						func(t *testing.T) {
							waiting := make(chan struct{})
							b := serveProtocol(t, &scripted{}, proto, nil)
							b.backend.open = func(ctx context.Context, _ Call) (Stream, error) {
								switch when {
								case "early":
									close(waiting)
									<-ctx.Done()
									return nil, ctx.Err()
								case "at a panic":
									return panicking{newPlay(step{recs: []string{"a"}})}, nil
								}
								return newPlay(step{recs: []string{"a"}}), nil
							}
							c := b.raw(version, body, "")
							in := bufio.NewReader(c)
							var got []byte
							if when == "in mid-stream" {
								for !strings.Contains(string(got), `"content":"a"`) {
									line, err := in.ReadBytes('\n')
									if err != nil {
										t.Fatal(err)
									}
									got = append(got, line...)
								}
							} else if when == "early" {
								<-waiting
							}
							if when != "at a panic" {
								if err := c.tcp.CloseWrite(); err != nil {
									t.Fatal(err)
								}
							}
							rest, err := io.ReadAll(in)
							got = append(got, rest...)
							if !errors.Is(err, syscall.ECONNRESET) {
								t.Errorf("the client reads %v, expected a reset, after %q", err, got)
							}
							if when == "early" && len(got) != 0 || strings.Contains(string(got), "\r\n0\r\n") ||
								strings.Contains(string(got), "DONE") {
								t.Errorf("the client has got %q", got)
							}
							b.untilOpen(0)
						})
				}
			}
		}
	}
}

// panicking is a stream that panics after its first records.
type panicking struct{ *play }

func (p panicking) NextBatch(ctx context.Context) ([][]byte, error) {
	if p.given.Load() > 0 {
		panic("by the test")
	}
	return p.play.NextBatch(ctx)
}

// TestAnswerThatIsGivenUpIsResetOverHTTP2: only the stream is.
func TestAnswerThatIsGivenUpIsResetOverHTTP2(t *testing.T) {
	for _, proto := range []string{"h2c", "h2 over TLS"} {
		t.Run(proto, func(t *testing.T) {
			fine := newPlay(step{recs: []string{"a"}})
			streams := []Stream{fine, panicking{newPlay(step{recs: []string{"a"}})}}
			b := serveProtocol(t, &scripted{}, proto, nil)
			b.backend.open = func(context.Context, Call) (Stream, error) {
				st := streams[0]
				streams = streams[1:]
				return st, nil
			}
			other, _ := b.start(chatStream)
			resp, _ := b.start(chatStream)
			if got, err := io.ReadAll(resp.Body); err == nil || !strings.Contains(err.Error(), "INTERNAL_ERROR") ||
				strings.Contains(string(got), "DONE") {
				t.Errorf("the client reads %v after %q, expected that the stream is reset", err, got)
			}
			fine.steps <- step{err: io.EOF}
			if got, err := io.ReadAll(other.Body); err != nil || !strings.HasSuffix(string(got), "data: [DONE]\n\n") {
				t.Errorf("the other stream of the connection: %v, %q", err, got)
			}
		})
	}
}

// TestEndThatCannotBeWritten: the client takes no bytes while the last of its answer is written. It is reset, and
// counts as one that was cut.
func TestEndThatCannotBeWritten(t *testing.T) {
	for _, version := range []string{"1.0", "1.1"} {
		for _, body := range []string{chatStream, chatBody} {
			for name, end := range map[string]error{"complete": io.EOF, "failed": &EndError{End: EndLost}} {
				if body == chatBody && end != io.EOF { // its error object fits
					continue
				}
				t.Run(fmt.Sprintf("HTTP/%s stream=%t %s", version, body == chatStream, name), func(t *testing.T) {
					// more than the kernels take
					last := step{recs: slices.Repeat([]string{strings.Repeat("x", 1<<20)}, 16), err: end}
					b := serve(t, &scripted{},
						func(c *Config) { c.WriteTimeout, c.MaxReplyBytes = 50*time.Millisecond, 32<<20 })
					b.backend.open = func(context.Context, Call) (Stream, error) { return newPlay(last), nil }
					c := b.raw(version, body, "")
					b.goneOnce()
					b.untilValue(1, "laneway_frontend_slow_clients_total")
					if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("the client reads %v, expected a reset", err)
					}
				})
			}
		}
	}
}

// unflushed is a client whose connection takes no more once the end of its answer has been written.
type unflushed struct{ *httptest.ResponseRecorder }

func (u unflushed) FlushError() error {
	if strings.Contains(u.Body.String(), "DONE") {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// TestEndThatCannotBeFlushedOverHTTP10: there the end of the connection is the end of the answer, so it is not left to
// the server to find out.
func TestEndThatCannotBeFlushedOverHTTP10(t *testing.T) {
	b := serve(t, playing(newPlay(step{recs: []string{"a"}}, step{err: io.EOF})), nil)
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(chatStream))
	r.ProtoMajor, r.ProtoMinor = 1, 0
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("the handler ends with %v, expected that it aborts", p)
		}
		b.goneOnce()
	}()
	b.ServeHTTP(unflushed{httptest.NewRecorder()}, r)
}
