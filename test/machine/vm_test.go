package machine

import "testing"

// stall is the kernel's message, every 21 seconds, while a processor gets no timer interrupts.
const stall = `[   22.517971] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[   22.518999] rcu: 	0-...!: (0 ticks this GP) idle=26e0/0/0x0 softirq=181/181 fqs=1 (false positive?)
[   22.529512] rcu: RCU grace-period kthread stack dump:
`

func TestHangs(t *testing.T) {
	const before = "[  OK  ] Reached target reboot.target - System Reboot.\r\n[  110.795801] reboot: Restarting system\r\n"
	const started = "[    5.1] systemd[1]: systemd 257 running in system mode\r\n"
	for _, tt := range []struct {
		name, console string
		silent        bool
		want          bool
	}{
		{"nothing yet", "", false, false},
		{"nothing for long", "", true, true},
		{"reset a moment ago", before, false, false},
		{"reset long ago", before, true, true},
		{"a new kernel by kexec", "kexec_core: Starting new kernel\n", true, true},
		{"two stalls, which a loaded host has", before + stall + stall, false, false},
		{"stalls in a row", before + stall + stall + stall, false, true},
		{"stalls before the reset", stall + stall + stall + before, false, false},
		{"stalls before the power was cut", stall + stall + stall + powerOn + "\n", false, false},
		{"silence after the power came", stall + powerOn + "\n", true, true},
		{"stalls, and on it goes", before + stall + stall + stall + started, true, false},
		{"silence of a boot that has begun", before + started, true, false},
	} {
		if got := hangs(tt.console, tt.silent); got != tt.want {
			t.Errorf("hangs(%s) = %t, want %t", tt.name, got, tt.want)
		}
	}
}
