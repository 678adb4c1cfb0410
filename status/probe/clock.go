package probe

import (
	"os"
	"path/filepath"
	"strings"
)

// ClockSet reports whether the wall clock was set since boot. Either the kernel sets it from a
// hardware clock (hctosys in the kernel's rtc.rst), or systemd-timesyncd from the network (its
// manual page). Otherwise the host shows some earlier time. It does not use adjtimex(2), because
// hostler.service forbids that call, which can also set clocks.
func (r *Reader) ClockSet() bool {
	return r.exists("/run/systemd/timesync/synchronized") || r.hardwareClock()
}

// hardwareClock reports whether the kernel has set the wall clock from a hardware clock.
func (r *Reader) hardwareClock() bool {
	clocks, _ := filepath.Glob(r.path("/sys/class/rtc/*/hctosys")) // the pattern is valid
	for _, file := range clocks {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == "1" {
			return true
		}
	}
	return false
}
