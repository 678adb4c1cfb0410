package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const (
	// settling is how long a start takes at most until nothing of it is needed any more.
	settling = 20 * time.Second
	// settled is how long what a busy time has needed stays when it is over. What comes
	// back each time costs a millisecond.
	settled = time.Minute
)

// settle gives back, once the start is over and now and then, what nobody needs now.
func (a *Agent) settle(ctx context.Context) {
	for wait := settling; ; wait = settled {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := unmapProgram(); err != nil {
			a.log.Debug("pages of the program stay mapped", "error", err)
		}
	}
}

// unmapProgram takes the pages of this program's own file, code and constants, out of
// this process's memory. A start, or a collection, goes through most of them, and the
// kernel maps sixteen at a time; what is needed again comes back from the page cache as
// it is needed, which is half (docs/performance.md). Nothing writes to these mappings, so
// that nothing is lost: see MADV_DONTNEED in madvise(2).
func unmapProgram() error {
	self, err := procfs.Self()
	if err != nil {
		return fmt.Errorf("give back pages of the program: %w", err)
	}
	program, err := self.Executable()
	if err != nil {
		return fmt.Errorf("give back pages of the program: %w", err)
	}
	maps, err := self.ProcMaps()
	if err != nil {
		return fmt.Errorf("give back pages of the program: %w", err)
	}
	for _, m := range maps {
		if m.Pathname != program || m.Perms.Write || m.Perms.Shared {
			continue
		}
		if _, _, err := unix.Syscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED); err != 0 {
			return fmt.Errorf("give back pages of the program at %#x: %w", m.StartAddr, err)
		}
	}
	return nil
}
