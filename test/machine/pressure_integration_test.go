//go:build integration

package machine_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/status"
	"hostler.io/hostler/test/machine"
)

// strain is a way to cause pressure on a machine, and hostler's report of it.
type strain struct {
	name       string
	begin, end string // commands
	condition  corev1.NodeConditionType
	reason     string
	message    string // part of the message
}

func strains() []strain {
	return []strain{
		{
			name:      "memory is held",
			begin:     `mount -o remount,size=90% /dev/shm; head -c $(awk '/MemTotal/ {t=$2} /MemAvailable/ {a=$2} END {printf "%d", (a - t/5)*1024}' /proc/meminfo) /dev/zero >/dev/shm/held`,
			end:       "rm /dev/shm/held",
			condition: corev1.NodeMemoryPressure, reason: status.ReasonInsufficientMemory, message: "threshold 30%",
		},
		{
			name:      "the disk is full to its last byte",
			begin:     "dd if=/dev/zero of=/var/lib/hostler/filler bs=1M 2>/dev/null; [ $? = 1 ]",
			end:       "rm /var/lib/hostler/filler",
			condition: corev1.NodeDiskPressure, reason: status.ReasonNodeFilesystemSpace, message: "/var/lib/hostler (ext4 on /dev/loop",
		},
		{
			name:      "all inodes are used up",
			begin:     "i=0; while true >/var/lib/hostler/filler$i; do i=$((i+1)); done 2>/dev/null; [ $i -gt 100 ]",
			end:       "rm /var/lib/hostler/filler*",
			condition: corev1.NodeDiskPressure, reason: status.ReasonNodeFilesystemInodes, message: "inodes free",
		},
		{
			name:      "processes are spawned",
			begin:     "sysctl -q kernel.pid_max=1000 && systemd-run -q --unit=crowd -p TasksMax=infinity sh -c 'for i in $(seq 500); do sleep infinity & done; wait'",
			end:       "systemctl stop crowd",
			condition: corev1.NodePIDPressure, reason: status.ReasonInsufficientPIDs, message: "kernel.pid_max",
		},
	}
}

// TestPressure causes each kind of pressure in turn: the Node reports it at once, and only once,
// and then its end.
func TestPressure(t *testing.T) {
	inVMs(t, func(t *testing.T, o machine.Options) {
		o.Config = `pressure: {memoryAvailable: 30%, pidAvailable: 50%, transitionPeriod: 3s}
status: {updateInterval: 2s}
`
		m := machine.Boot(t, o)
		m.Deploy(machine.Pod{Name: "web"})
		// This disk is filled in a moment.
		m.Run(`systemctl stop hostler
			truncate -s 48M /root/state.img && mkfs.ext4 -q -N 512 /root/state.img
			modprobe loop; mount -o loop /root/state.img /var/lib/hostler
			systemctl start hostler`)
		m.AwaitArmed()
		for _, s := range strains() {
			awaitCondition(t, m, s.name+": not yet", s.condition, corev1.ConditionFalse)
			m.Run(s.begin)
			c := awaitCondition(t, m, s.name, s.condition, corev1.ConditionTrue)
			if c.Reason != s.reason || !strings.Contains(c.Message, s.message) {
				t.Errorf("%s: condition %s is %s: %s, want %s, and %q in it", s.name, c.Type, c.Reason, c.Message, s.reason, s.message)
			}
			m.Run(s.end)
			awaitCondition(t, m, s.name+": no more", s.condition, corev1.ConditionFalse)
		}
		untouched(t, m, "the machine has been under pressure")
		metrics, log := m.Run("busybox wget -q -O - http://127.0.0.1:9754/metrics"), m.Journal(0, "-u hostler")
		for kind, times := range map[corev1.NodeConditionType]int{corev1.NodeMemoryPressure: 1, corev1.NodeDiskPressure: 2, corev1.NodePIDPressure: 1} {
			if want := fmt.Sprintf("hostler_condition_transitions_total{condition=%q,status=\"True\"} %d\n", kind, times); !strings.Contains(metrics, want) {
				t.Errorf("metrics lack %s:\n%s", want, grep(metrics, "hostler_condition"))
			}
			if lines := grep(log, "type="+string(kind)+" status=True"); strings.Count(lines, "\n") != times {
				t.Errorf("the agent's log reports %s %d times, want %d:\n%s", kind, strings.Count(lines, "\n"), times, lines)
			}
		}
	})
}

// awaitCondition waits until the Node has a condition of that status.
func awaitCondition(t *testing.T, m *machine.Machine, when string, kind corev1.NodeConditionType, want corev1.ConditionStatus) (found corev1.NodeCondition) {
	t.Helper()
	m.Eventually(when+": "+string(kind)+" is "+string(want), func() bool {
		s, err := m.TryStatus()
		if err != nil || s.Node == nil {
			return false
		}
		for _, c := range s.Node.Status.Conditions {
			if c.Type == kind {
				found = c
			}
		}
		return found.Status == want
	})
	return found
}
