package doctor

import (
	"errors"
	"fmt"
	"strings"

	"hostler.io/hostler/agent/rebooters"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/systemd"
)

// Reboots is who reboots this host.
type Reboots struct {
	Enabled bool                 // hostler does, with a slot
	Problem string               // with the reboot that is requested; empty for none
	Broken  []Fix                // files and checks that cannot request a reboot, because they cannot run or fail
	Others  []rebooters.Rebooter // that need no slot; units only if Enabled
	Err     error                // why some of them may be missing; nil where none is
}

// otherReboots warns of other programs that reboot a host that hostler reboots. If hostler does not
// reboot the host, others may: hostler still stops the pods first.
func otherReboots(f Facts) Check {
	r := f.Reboots
	unread := Check{}
	if late, ok := errors.AsType[*bounded.LateError](r.Err); ok {
		unread = Check{
			Status: Unknown, Message: fmt.Sprintf("cannot check what reboots this host: %v", late),
			Hint: fmt.Sprintf("check who can change %s, and its file system: a cron job or timer that runs it may hang, too", late.Path),
		}
	}
	if !r.Enabled {
		var names []string
		for _, other := range r.Others {
			names = append(names, other.Name)
		}
		if len(names) == 0 {
			return unread
		}
		return ok("this host is rebooted by %s; hostler does not reboot it, see reboot.enabled", strings.Join(names, ", "))
	}
	var found faults
	for _, other := range r.Others {
		found.add(warn(other.Off, "%s also reboots this host, without a reboot slot", other.Name))
	}
	fine := ok("only hostler reboots this host")
	if unread.Status != "" {
		fine = unread
	} else if r.Err != nil && !errors.Is(r.Err, systemd.ErrNotSystemd) {
		fine = unknown("which timers reboot this host", r.Err)
	}
	return found.or(fine)
}

// reboot reports why a requested reboot makes no progress, and which checks cannot request one.
func reboot(f Facts) Check {
	var found faults
	if f.Reboots.Problem != "" {
		found.add(warn(RebootFix, "%s", f.Reboots.Problem))
	}
	return append(found, warnings(f.Reboots.Broken)...).joined("\n", Check{})
}

// RebootFix is what to do about a reboot that does not end.
const RebootFix = "remove the cause; if a reboot is requested, `hostler reboot --cancel` ends it and gives the slot back"
