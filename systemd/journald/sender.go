package journald

import (
	"io"
	"net"
)

// Sender writes records to the journal's socket, and to Stream if the socket does not accept them.
// Send blocks while the journal does not read. One goroutine owns it.
type Sender struct {
	Socket string
	Stream io.Writer

	conn *net.UnixConn // nil before the first record, and after an error
}

// Send writes a record. It drops errors of the stream, because there is no other place to write
// them.
func (s *Sender) Send(r Record) {
	if r.Entry == nil || s.send(r.Entry) != nil {
		_, _ = s.Stream.Write(r.Line)
	}
}

// send writes an entry to the socket. If an existing connection fails, it connects again once: the
// journal may have restarted.
func (s *Sender) send(entry []byte) error {
	for {
		fresh := s.conn == nil
		if fresh {
			conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.Socket, Net: "unixgram"})
			if err != nil {
				return err
			}
			s.conn = conn
		}
		_, err := s.conn.Write(entry)
		if err == nil {
			return nil
		}
		_ = s.conn.Close()
		s.conn = nil
		if fresh {
			return err
		}
	}
}
