package systemd

import (
	"cmp"
	"context"
	"fmt"

	"hostler.io/hostler/systemd/bus"
)

// ClockSynchronized tells whether somebody has set the clock and said how right it is, and that has not
// grown too old since, in some nine hours. It asks systemd-timedated on the bus at that address,
// the system's if empty, which is started by being asked: not while the system stops. See
// org.freedesktop.timedate1(5), NTPSynchronized. hostler may not ask the kernel itself, by
// adjtimex(2): the same call sets clocks.
func ClockSynchronized(ctx context.Context, address string) (set bool, err error) {
	const timedate = "org.freedesktop.timedate1"
	ctx, cancel := context.WithTimeout(ctx, bus.DefaultTimeout)
	defer cancel()
	conn, err := bus.Dial(ctx, cmp.Or(address, bus.DefaultAddress), true)
	if err == nil {
		defer conn.Close()
		err = conn.Object(timedate, "/org/freedesktop/timedate1").CallWithContext(ctx, bus.Properties+".Get", 0, timedate, "NTPSynchronized").Store(&set)
	}
	if err != nil {
		return false, fmt.Errorf("ask systemd-timedated whether the clock is set: %w", err)
	}
	return set, nil
}
