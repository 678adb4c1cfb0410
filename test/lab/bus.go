package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/godbus/dbus/v5"
)

// BusSocket is where the lab's system bus listens: the well-known place, which
// inside is the lab's own.
const BusSocket = "/run/dbus/system_bus_socket"

// busConfig is the default policy of Debian's system bus, with logind's own.
// There is no service activation: who calls a service that is down gets
// ServiceUnknown, where systemd would start it and let the caller wait.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <auth>EXTERNAL</auth>
  <listen>unix:path=` + BusSocket + `</listen>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Introspectable"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Properties"/>
  </policy>
  <policy user="root">
    <allow own="org.freedesktop.systemd1"/>
    <allow send_destination="org.freedesktop.systemd1"/>
  </policy>
  <include>%s</include>
</busconfig>
`

// newBus prepares the system bus, and does not start it.
func (l *Lab) newBus(dir string) (*Daemon, error) {
	config := filepath.Join(dir, "bus.conf")
	if err := os.MkdirAll(filepath.Dir(BusSocket), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, busConfig, l.Tools.LoginPolicy), 0o644); err != nil {
		return nil, err
	}
	return NewDaemon("dbus-daemon", l.Tools.DBusDaemon, dir, nil,
		"--config-file="+config, "--nofork", "--nopidfile", "--nosyslog"), nil
}

// connectBus opens a connection of one's own to the system bus.
func connectBus(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.Connect("unix:path="+BusSocket, dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("connect to the lab's system bus: %w", err)
	}
	return conn, nil
}

// acceptPeer does the server's part of D-Bus authentication on a connection
// without a bus, as systemd's private socket speaks it, and returns a godbus
// connection on it. godbus knows only the client's part, so it gets to hear what
// a server would have answered. What export exports is there before the first
// call is read: godbus does not guard the one from the other.
func acceptPeer(ctx context.Context, peer net.Conn, export func(*dbus.Conn) error) (*dbus.Conn, error) {
	in := bufio.NewReader(peer)
	if _, err := in.ReadByte(); err != nil { // the credentials byte
		return nil, err
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		answer := "ERROR\r\n" // to NEGOTIATE_UNIX_FD too: nothing here passes descriptors
		switch verb, rest, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case verb == "BEGIN":
			conn, err := dbus.NewConn(&peerConn{in: in, Conn: peer, greeting: strings.NewReader(
				"REJECTED EXTERNAL\r\nOK 0123456789abcdef0123456789abcdef\r\n")}, dbus.WithContext(ctx))
			if err != nil {
				return nil, err
			}
			if err := export(conn); err != nil {
				return nil, err
			}
			return conn, conn.Auth([]dbus.Auth{dbus.AuthExternal("0")})
		case verb == "AUTH" && rest == "":
			answer = "REJECTED EXTERNAL\r\n"
		case verb == "AUTH" && strings.HasPrefix(rest, "EXTERNAL "):
			answer = "OK 0123456789abcdef0123456789abcdef\r\n"
		case verb == "AUTH":
			answer = "DATA\r\n"
		case verb == "DATA":
			answer = "OK 0123456789abcdef0123456789abcdef\r\n"
		}
		if _, err := io.WriteString(peer, answer); err != nil {
			return nil, err
		}
	}
}

// peerConn answers godbus's authentication from a greeting, drops what it says
// meanwhile, and is the peer's connection afterwards.
type peerConn struct {
	net.Conn
	in       *bufio.Reader
	greeting *strings.Reader
	begun    bool
}

func (c *peerConn) Read(p []byte) (int, error) {
	if c.greeting.Len() > 0 {
		return c.greeting.Read(p)
	}
	return c.in.Read(p)
}

func (c *peerConn) Write(p []byte) (int, error) {
	if !c.begun {
		c.begun = strings.HasPrefix(string(p), "BEGIN")
		return len(p), nil
	}
	return c.Conn.Write(p)
}
