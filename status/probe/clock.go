package probe

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ClockSet tells whether the wall clock can be believed: the kernel holds it for
// synchronized, or has set it from a hardware clock at this boot (adjtimex(2),
// hctosys in the kernel's rtc.rst). A host without either shows some time of before
// until the network tells it another.
func (r *Reader) ClockSet() bool {
	state, err := unix.Adjtimex(&unix.Timex{})
	return err == nil && state != unix.TIME_ERROR || r.hardwareClock()
}

// hardwareClock tells whether the kernel has set the wall clock from one.
func (r *Reader) hardwareClock() bool {
	clocks, _ := filepath.Glob(r.path("/sys/class/rtc/*/hctosys")) // the pattern is sound
	for _, file := range clocks {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == "1" {
			return true
		}
	}
	return false
}
