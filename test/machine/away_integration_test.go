//go:build integration

package machine_test

import (
	"testing"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
)

// TestTheControlPlaneIsAway takes the store of the embedded control plane away,
// which is the one that machines have, and shuts down: the pods get their time,
// and nobody waits for the store.
func TestTheControlPlaneIsAway(t *testing.T) {
	eachMachine(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		g := gracesOf(o.Bed)
		o.Config = g.config()
		a := away{t, machine.Boot(t, o)}
		a.refuses()
		if o.Bed == machine.VM { // to freeze a filesystem takes a kernel that nobody else needs
			a.hangs()
		}
	})
}

type away struct {
	*testing.T
	m *machine.Machine
}

// expectOrder looks that a pod and a critical one ended in order, as they do.
func (a away) expectOrder(boot, web, db string) {
	a.Helper()
	work := a.m.Work().Boot(boot)
	expectTerms(a.T, work, web, 1)
	expectTerms(a.T, work, db, 1)
	if !work.GoneBefore(web, db) || !work.Ended(web) || !work.Ended(db) {
		a.Errorf("Work() = want %s, then %s to end:\n%s", web, db, work)
	}
}

// refuses: nothing can be written. What is known lives in memory, and ends there.
func (a away) refuses() {
	a.m.Run("systemctl stop hostler && mount --bind /var/lib/hostler /var/lib/hostler && mount -o remount,bind,ro /var/lib/hostler && systemctl start hostler")
	a.m.AwaitArmed()
	if s := a.m.Status(); s.State.Message == "" {
		a.Fatalf("Status().State = %+v, want it to say that nothing is kept", s.State)
	}
	a.m.Deploy(machine.Pod{Name: "web"}, machine.Pod{Name: "db", Critical: true})
	boot := a.m.BootID()
	a.m.GoesDown("systemctl reboot")
	a.expectOrder(boot, "web", "db")
	awaitReady(a.T, a.m, "after a boot without a store")
	if s := a.m.Status(); s.State.Message != "" {
		a.Errorf("Status().State = %+v, want it well again", s.State)
	}
}

// hangs: whoever writes, waits. The shutdown does not, and what there is to tell
// is written once the store is back, on the way down.
func (a away) hangs() {
	a.m.Write("/etc/systemd/system/thaw.service", `[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=true
ExecStop=fsfreeze --unfreeze /var/lib/hostler
`)
	a.m.Run(`systemctl daemon-reload && systemctl start thaw && systemctl stop hostler
		truncate -s 64M /root/state.img && mkfs.ext4 -q /root/state.img && mkdir /root/old && cp -a /var/lib/hostler/. /root/old
		modprobe loop; mount -o loop /root/state.img /var/lib/hostler && cp -a /root/old/. /var/lib/hostler
		echo '/root/state.img /var/lib/hostler ext4 loop 0 0' >>/etc/fstab
		systemctl daemon-reload && systemctl start hostler`)
	a.m.AwaitArmed()
	a.m.Deploy(machine.Pod{Name: "web2"}, machine.Pod{Name: "db2", Critical: true})
	boot := a.m.BootID()
	a.m.GoesDown("fsfreeze --freeze /var/lib/hostler && systemctl reboot")
	a.expectOrder(boot, "web2", "db2")
	expectRecord(a.T, a.m, boot, map[string]journal.Outcome{"web2": journal.Stopped, "db2": journal.Stopped})
	awaitReady(a.T, a.m, "after a boot with a store that hung")
}
