package local

import (
	"fmt"
	"syscall"

	"github.com/moby/sys/signal"
)

// ParseStopSignal parses a container's stop signal. It returns SIGTERM if there is none, and with
// an error if it is none that dockerd sends: images may contain any number.
func ParseStopSignal(text string) (syscall.Signal, error) {
	if text == "" {
		return syscall.SIGTERM, nil
	}
	parsed, err := signal.ParseSignal(text)
	if err == nil && !signal.ValidSignalForPlatform(parsed) {
		err = fmt.Errorf("invalid signal: %s", text)
	}
	if err != nil {
		return syscall.SIGTERM, err
	}
	return parsed, nil
}
