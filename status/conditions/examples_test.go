package conditions_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runExample runs a packaged check with another proc filesystem, and with a command that prints a
// text. It returns the check's output.
func runExample(t *testing.T, name, proc, command, prints string) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("../../packaging/conditions.d", name))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, command), []byte("#!/bin/sh\ncat <<'END'\n"+prints+"\nEND\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.ReplaceAll(string(script), "/proc/", proc+"/"))
	cmd.Env = []string{"PATH=" + folder + ":/usr/bin:/bin"}
	output, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%s: %v", name, err)
	}
	return strings.TrimSpace(string(output))
}

// The stat of an earlier run is still in the cgroup of the service. Another process may have the
// same command line.
func TestTheExampleOfAStaleMountBelievesOnlyItsOwnProcess(t *testing.T) {
	mount := t.TempDir()
	const own, other = "1:name=systemd:/x\n0::/system.slice/hostler.service\n", "0::/system.slice/hostler.service/x\n"
	for want, cgroup := range map[string]string{
		"all 1 network mounts answer":           other,
		"does not answer: " + mount + " (nfs4)": own,
	} {
		proc := t.TempDir()
		for path, text := range map[string]string{
			"self/mounts": "server:/ " + mount + " nfs4 rw 0 0\n",
			"self/cgroup": own,
			"71/cgroup":   cgroup,
			"71/cmdline":  "stat\x00--file-system\x00--format\x00%T\x00--\x00" + mount + "\x00",
			"72/cgroup":   own,
			"72/cmdline":  "hostler\x00agent\x00",
		} {
			path := filepath.Join(proc, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := runExample(t, "stale-mount", proc, "stat", ""); got != want {
			t.Errorf("stale-mount beside a stat in cgroup %q prints %q, want %q", cgroup, got, want)
		}
	}
}

// A user chooses the name of a program, of at most 15 characters, which the kernel prints.
func TestTheExampleOfKernelProblemsBelievesNoName(t *testing.T) {
	const none = "no such kernel message within 90s"
	for message, want := range map[string]string{
		"mce: [Hardware Error]: Machine check events logged":                                                         "",
		"Out of memory: Killed process 7 (Oops: ) total-vm:1kB":                                                      "",
		"EXT4-fs error (device sda1): ext4_find_entry:1463: inode #2: comm ls: reading directory":                    "",
		`EXT4-fs error (device sda1): comm "C:\new": reading directory`:                                              "",
		"Hardware Error[71]: segfault at 0 ip 0000000000401106 sp 00007ffe error 6 in x[401000+1]":                   none,
		"process 'x' launched '/tmp/BUG: x' with NULL argv: empty string added":                                      none,
		"show_signal_msg: 3 callbacks suppressed":                                                                    none,
		"traps: Kernel panic[71] general protection fault ip:401106 sp:7ffe error:0 in x[401000+1]":                  none,
		"Oops: \nx[71]: segfault at 0 ip 0000000000401106 sp 00007ffe error 6 in x[401000+1]":                        none,
		"x\nMESSAGE=Oops: [71]: segfault at 0 ip 0000000000401106 sp 00007ffe error 6":                               none,
		`Kernel panic - not syncing: a","MESSAGE":"b`:                                                                "",
		"netlink: 4 bytes leftover after parsing attributes in process `BUG: x'.":                                    none,
		"BUG: Bad page m invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0":                   none,
		"I/O error, dev : page allocation failure: order:9, mode:0x40dc0, nodemask=(null),cpuset=x, sector 1":        none,
		"Oops: 0000 [#1]: attempt to access beyond end of device":                                                    none,
		"XFS (a): b: page allocation failure: order:9, mode:0x0,cpuset=Shutting down filesystem,mems_allowed=0":      none,
		"INFO: task a:1 : page allocation failure: order:9, mode:0x0,cpuset=blocked for more than 1 seconds":         none,
		"[Hardware Error invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0":                   none,
		"BUG: KFENCE: us invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0":                   none,
		"Hardware Error: page allocation failure: order:9, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), nodemask": none,
		"traps: x\nOops: x[71] trap invalid opcode ip:401106 sp:7ffe error:0 in x[401000+1]":                         none,
	} {
		if want == "" {
			want = message
		}
		if got := kernelProblem(t, message); got != want {
			t.Errorf("kernel-problem of %q prints %q, want %q", message, got, want)
		}
	}
}

// Each message is one that Linux 6.1 or 6.12 prints.
func TestTheExampleOfKernelProblemsKnowsTheMessagesOfTheKernel(t *testing.T) {
	for _, message := range []string{
		"INFO: task jbd2/sda1-8:261 blocked for more than 120 seconds.",
		"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [work:71]",
		"watchdog: Watchdog detected hard LOCKUP on cpu 2",
		"NMI watchdog: Watchdog detected hard LOCKUP on cpu 2",
		"watchdog: CPU2: Watchdog detected hard LOCKUP on cpu 2",
		"rcu: INFO: rcu_preempt self-detected stall on CPU",
		"rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
		"rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-.... } 21 jiffies s: 1 root: 0x8/.",
		"INFO: rcu_tasks detected stalls on tasks:",
		"Out of memory: Killed process 71 (work) total-vm:1kB, anon-rss:1kB",
		"Memory cgroup out of memory: Killed process 71 (work) total-vm:1kB, anon-rss:1kB",
		"I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
		"blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0",
		"EXT4-fs error (device sda1): ext4_find_entry:1463: inode #2: comm ls: reading directory lblock 0",
		"BTRFS error (device sda1): bdev /dev/sda1 errs: wr 1, rd 0, flush 0, corrupt 0, gen 0",
		"BTRFS: error (device sda1) in btrfs_commit_transaction:2494: errno=-5 IO failure (Error while writing out transaction)",
		"BTRFS critical (device dm-0: state E): corrupt leaf: root=2 block=1 slot=1, bad key order",
		"XFS (dm-0): Metadata corruption detected at xfs_agf_read_verify+0xa1/0xf0 [xfs], xfs_agf block 0x1",
		"XFS (sdc1): Metadata CRC error detected at xfs_agf_read_verify+0xd1/0x100 [xfs], xfs_agf block 0x1",
		"XFS (sda1): Corruption detected. Unmount and run xfs_repair",
		"XFS (sda1): Corruption of in-memory data (0x8) detected at xfs_trans_cancel+0x1 [xfs] (fs/xfs/xfs_trans.c:1097).  Shutting down filesystem.",
		"XFS (sda1): Log I/O Error (0x2) detected at xlog_ioend_work+0x1 [xfs] (fs/xfs/xfs_log.c:1378).  Shutting down filesystem.",
		"mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 4: b200000000070f0f",
		"{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0",
		"[Hardware Error]: Corrected error, no action required.",
		"Severe Machine check interrupt [Not recovered]",
		"Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b",
		"BUG: kernel NULL pointer dereference, address: 0000000000000000",
		"BUG: unable to handle page fault for address: ffffffffc0000000",
		"BUG: Unable to handle kernel data access at 0xdead",
		"BUG: Bad page state in process work  pfn:00001",
		"BUG: Bad rss-counter state mm:00000000 type:MM_ANONPAGES val:1",
		"BUG: scheduling while atomic: work/71/0x00000002",
		"BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 31s!",
		"BUG: KFENCE: use-after-free read in work+0x1/0x2",
		"Oops: 0000 [#1] PREEMPT SMP PTI",
		"Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI",
		"Oops: divide error: 0000 [#1] PREEMPT SMP NOPTI",
		"Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] PREEMPT SMP PTI",
		"Internal error: Oops: 0000000096000004 [#1] SMP",
		"nf_conntrack: nf_conntrack: table full, dropping packet",
		"unregister_netdevice: waiting for lo to become free. Usage count = 1",
	} {
		if got := kernelProblem(t, message); got != message {
			t.Errorf("kernel-problem of %q prints %q, want the message", message, got)
		}
	}
}

// kernelProblem returns what the example prints if the kernel has printed a message.
func kernelProblem(t *testing.T, message string) string {
	t.Helper()
	record, err := json.Marshal(map[string]string{"MESSAGE": message, "_BOOT_ID": "2d3d64ef"}) // as journalctl prints it
	if err != nil {
		t.Fatal(err)
	}
	return runExample(t, "kernel-problem", t.TempDir(), "journalctl", string(record))
}
