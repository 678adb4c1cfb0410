package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/godbus/dbus/v5"
)

// BusSocket is the usual address of the system bus. Inside the lab it is the lab's own bus.
const BusSocket = "/run/dbus/system_bus_socket"

const busAddress = "unix:path=" + BusSocket

// busConfig is the default policy of Debian's system bus, and logind's own. There is no service
// activation: a call to a service that is down returns ServiceUnknown, where systemd would start
// the service while the caller waits.
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

// newBus prepares the system bus, but does not start it.
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

// connectBus opens a private connection to the system bus.
func connectBus(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.Connect(busAddress, dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("connect to the lab's system bus: %w", err)
	}
	return conn, nil
}
