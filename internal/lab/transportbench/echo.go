package transportbench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Kinds of messages.
const (
	kindEcho = iota + 1
	kindCount
	kindFin
	kindSend
)

const (
	headLen = 5
	// maxMessage bounds a message's body, in bytes.
	maxMessage = 16 << 20
	buffered   = 64 << 10
)

// writeMessage writes a message to a buffered writer.
func writeMessage(w *bufio.Writer, kind byte, body []byte) error {
	var head [headLen]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(body)))
	head[4] = kind
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

// readMessage reads one into buf, which it grows.
func readMessage(r *bufio.Reader, buf []byte) (kind byte, body []byte, err error) {
	var head [headLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, buf, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return 0, buf, fmt.Errorf("a message of %d bytes", n)
	}
	if int(n) > cap(buf) {
		buf = make([]byte, n)
	}
	body = buf[:n]
	_, err = io.ReadFull(r, body)
	return head[4], body, err
}

// ask is the body of a message of kind send: that many messages of that many bytes.
func ask(messages, size int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(messages)), uint32(size))
}

// send writes what a message of kind send asks for.
func send(w *bufio.Writer, asked []byte) error {
	if len(asked) != 8 || binary.BigEndian.Uint32(asked[4:]) > maxMessage {
		return fmt.Errorf("a message of kind send says %x: it holds a count and a size of at most %d", asked,
			maxMessage)
	}
	body := make([]byte, binary.BigEndian.Uint32(asked[4:]))
	for range binary.BigEndian.Uint32(asked) {
		if err := writeMessage(w, kindCount, body); err != nil {
			return err
		}
	}
	return writeMessage(w, kindFin, nil)
}

// serveLane answers the messages of a lane until it ends.
func serveLane(c io.ReadWriter) error {
	in, out := bufio.NewReaderSize(c, buffered), bufio.NewWriterSize(c, buffered)
	var buf []byte
	var messages, bytes uint64
	for {
		kind, body, err := readMessage(in, buf)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		buf = body
		switch kind {
		case kindEcho:
			err = writeMessage(out, kindEcho, body)
		case kindCount:
			messages, bytes = messages+1, bytes+uint64(len(body))
		case kindFin:
			total := binary.BigEndian.AppendUint64(nil, messages)
			err = writeMessage(out, kindFin, binary.BigEndian.AppendUint64(total, bytes))
			messages, bytes = 0, 0
		case kindSend:
			err = send(out, body)
		default:
			err = fmt.Errorf("a message of kind %d", kind)
		}
		if err == nil && in.Buffered() == 0 {
			err = out.Flush()
		}
		if err != nil {
			return err
		}
	}
}
