package probe

import (
	"os"
	"path/filepath"
	"strings"
)

// ClockSet reports whether the wall clock can be believed: the kernel has set it from a
// hardware clock at this boot (hctosys in the kernel's rtc.rst), or systemd-timesyncd from
// the network (its manual page). A host without either shows some time of before. What the
// kernel holds of it is not asked, by adjtimex(2): hostler.service may not, since the same
// call sets clocks.
func (r *Reader) ClockSet() bool {
	return r.exists("/run/systemd/timesync/synchronized") || r.hardwareClock()
}

// hardwareClock reports whether the kernel has set the wall clock from one.
func (r *Reader) hardwareClock() bool {
	clocks, _ := filepath.Glob(r.path("/sys/class/rtc/*/hctosys")) // the pattern is sound
	for _, file := range clocks {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == "1" {
			return true
		}
	}
	return false
}
