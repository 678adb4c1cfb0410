//go:build integration

package machine_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/machine"
)

// exposed is the maximum exposure level of the service according to systemd-analyze(1), in tenths.
const exposed = 30

// TestAPackageComesAndGoes installs and removes hostler with its package and maintainer scripts, as
// people do. Running containers are never touched.
func TestAPackageComesAndGoes(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Bare = true
		h := &packaged{t: t, Machine: machine.Boot(t, o)}
		h.Deploy(machine.Pod{Name: "web", Critical: true})
		h.Run("groupdel hostler && userdel hostler-exec") // which other machines have from their root
		before := h.traces()
		h.Run("mkdir /mnt/before /mnt/after && mount -t tmpfs tmpfs /mnt/before")

		h.dpkg("--install " + machine.Package)
		h.open("it is installed for the first time, without a configuration")
		h.restarted()
		h.hung()
		h.takenBack()
		h.hardened()
		h.lacksFolder()
		h.seesMounts()
		h.runsChecks()
		h.deletesByRunc()
		h.upgradedAmidADrain()
		h.upgradedWithAFault()
		h.downgraded()
		node := h.Status().Node.UID

		h.dpkg("--remove hostler")
		h.closed("it is removed")
		h.dpkg("--install " + machine.Package)
		h.open("it is installed again")
		if uid := h.Status().Node.UID; uid != node || !strings.Contains(h.Read("/etc/hostler/conf.d/house.yaml"), "gracePeriod") {
			t.Errorf("after a removal and an installation the Node's UID is %s, want %s and the configuration as before", uid, node)
		}

		h.dpkg("--purge hostler")
		h.closed("it is purged")
		if after := h.traces(); after != before {
			t.Errorf("a purge leaves\n%s\nwant\n%s", after, before)
		}
		h.dpkg("--install " + machine.Package)
		h.open("it is installed after a purge")
	})
}

// packaged is a machine that gets hostler with its package.
type packaged struct {
	*machine.Machine
	t *testing.T
}

func (h *packaged) dpkg(what string) string {
	h.t.Helper()
	return h.Run("dpkg " + what + " 2>&1")
}

// release builds the package with another version, and returns its path.
func (h *packaged) release(version string) string {
	h.t.Helper()
	path := "/root/hostler-" + version + ".deb"
	h.Run(fmt.Sprintf(`set -e
		dpkg-deb --raw-extract %s /root/made
		sed -i 's/^Version: .*/Version: %s/' /root/made/DEBIAN/control
		dpkg-deb --build -Znone /root/made %s >/dev/null
		rm -r /root/made`, machine.Package, version, path))
	return path
}

// open checks that hostler guards the machine, and that the pod was not touched.
func (h *packaged) open(when string) {
	h.t.Helper()
	h.AwaitArmed()
	if n := hostlersLocks(h.Machine); n != 1 {
		h.t.Errorf("hostler holds %d locks when %s, want 1", n, when)
	}
	if socket := h.Run("stat --format '%A %U %G' /run/hostler/hostler.sock"); socket != "srw-rw---- root hostler\n" {
		h.t.Errorf("the socket is %q when %s, want it open to group hostler", socket, when)
	}
	// In a folder of /run/systemd. The unit may not write to the rest of it.
	h.Eventually("the drop-in to logind's configuration is written when "+when, func() bool {
		return strings.Contains(h.Run("cat "+raisedBy+" 2>/dev/null; true"), "InhibitDelayMaxSec=")
	})
	h.livesOn(when)
}

// closed checks that no agent runs, and that the pod was not touched.
func (h *packaged) closed(when string) {
	h.t.Helper()
	left := h.Run("pgrep -x hostler; ls -d /run/hostler /run/systemd/logind.conf.d/zz-hostler.conf /usr/bin/hostler 2>/dev/null; true")
	if n := hostlersLocks(h.Machine); n != 0 || left != "" {
		h.t.Errorf("there are %d locks and %q when %s, want nothing", n, left, when)
	}
	h.livesOn(when)
}

// livesOn checks that the pod was not touched.
func (h *packaged) livesOn(when string) {
	h.t.Helper()
	before := h.Work().Pod("web")
	if len(before) != 1 || len(before[0].Signals) > 0 || !before[0].CutOff() {
		h.t.Fatalf("web was touched when %s:\n%s", when, before)
	}
	h.Eventually("web lives on", func() bool { return h.Work().Pod("web")[0].LastSeen.After(before[0].LastSeen) })
}

// traces returns everything named hostler, and what is in /etc and /usr.
func (h *packaged) traces() string {
	h.t.Helper()
	return h.Run(`find /etc /usr -xdev \( -path '/etc/*-' -o -name .pwd.lock \) -prune -o -print | sort | sha256sum
		find /var /run /tmp /srv -xdev \( -path '/var/lib/hostler-work*' -o -path '/run/systemd/units/*' \) -prune -o -name '*hostler*' -print | sort
		getent group hostler hostler-exec; getent passwd hostler-exec; systemctl list-units --all --no-legend 'hostler*'; true`)
}

// restarted restarts the agent more often than systemd allows a service by default: it must start
// again, whatever was done to it.
func (h *packaged) restarted() {
	h.t.Helper()
	h.Run("for i in 1 2 3 4 5 6 7 8; do systemctl restart hostler || exit; done")
	h.open("it was restarted again and again")
}

// hardened checks the unit with systemd-analyze(1), under another name, because drop-ins belong to
// a machine.
func (h *packaged) hardened() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), machine.Patience)
	defer cancel()
	r, err := h.Try(ctx, fmt.Sprintf("cp /usr/lib/systemd/system/hostler.service /tmp/packaged.service && systemd-analyze security --offline=true --no-pager --threshold=%d /tmp/packaged.service", exposed))
	if err != nil || r.Code != 0 {
		h.t.Errorf("hostler.service is exposed by more than %.1f, %v; it lacks\n%s%s", exposed/10.0, err, grep(r.Stdout, "✗"), r.Stderr)
	}
	unit := h.Read("/usr/lib/systemd/system/hostler.service")
	for line := range strings.Lines(grep(r.Stdout, "✗")) {
		name, _, _ := strings.Cut(strings.Fields(line)[1], "=")
		if name = regexp.QuoteMeta(name); !regexp.MustCompile(`(?m)^#.*\b` + name + `=|^#.*\n` + name + `=`).MatchString(unit) {
			h.t.Errorf("no comment in hostler.service says why it lacks %s=", name)
		}
	}
	h.t.Logf("seen: %s", strings.TrimSpace(grep(r.Stdout, "exposure level")))
}

// lacksFolder removes the folder of the drop-in to logind's configuration. The unit does not allow
// the agent to create it, and the log says how to do so.
func (h *packaged) lacksFolder() {
	h.t.Helper()
	const fix = "systemd-tmpfiles --create hostler.conf"
	h.Run("systemctl stop hostler && rm -r $(dirname " + raisedBy + ") && systemctl start hostler")
	h.Eventually("the log names the command that makes the folder", func() bool {
		return strings.Contains(h.Journal(0, "-u hostler"), fix)
	})
	h.Run(fix + " && systemctl restart hostler")
	h.open("the folder of its drop-in is back")
}

// seesMounts mounts and unmounts outside the agent, which has its own mount namespace: it must see
// new mounts, and must not block an unmount.
func (h *packaged) seesMounts() {
	h.t.Helper()
	seen := func() string {
		return h.Run("awk '$5 ~ /^.mnt/ {print $5}' /proc/" + agentPID(h.Machine) + "/mountinfo | sort | tr '\\n' ' '")
	}
	h.Run("mount -t tmpfs tmpfs /mnt/after")
	if got := seen(); got != "/mnt/after /mnt/before " {
		h.t.Errorf("the agent sees %q mounted, want what was before it and what came after", got)
	}
	h.Run("umount /mnt/before /mnt/after")
	if got := seen(); got != "" {
		h.t.Errorf("the agent has %q mounted, which the host has unmounted", got)
	}
}

// runsChecks lets the agent run a check as hostler-exec, and one as root, which inspect processes. When
// memory runs out, the kernel must kill them before the agent. In a container, systemd may not be
// allowed to protect the agent.
func (h *packaged) runsChecks() {
	h.t.Helper()
	const folder = "/etc/hostler/conditions.d/"
	const unprotected = "until [ \"$(cat /proc/$$/oom_score_adj)\" = 0 ]; do sleep 0.1; done\n"
	h.Write(folder+"as-user", "#!/bin/sh\n# hostler:\n#   interval: 1s\n"+unprotected+"[ \"$(id -un)\" = hostler-exec ] && grep -q systemd /proc/1/comm && exit 1\n")
	h.Write(folder+"as-root", "#!/bin/sh\n# hostler:\n#   interval: 1s\n#   user: root\n"+unprotected+"readlink /proc/1/exe >/dev/null && exit 1\n")
	h.Run("chmod 755 " + folder + "*")
	if score := h.Run("cat /proc/" + agentPID(h.Machine) + "/oom_score_adj"); bed() == machine.VM && score != "-900\n" {
		h.t.Errorf("oom_score_adj of the agent = %q, want -900", score)
	}
	for _, kind := range []corev1.NodeConditionType{"hostler.io/AsUser", "hostler.io/AsRoot"} {
		awaitCondition(h.t, h.Machine, "its check has run", kind, corev1.ConditionTrue)
	}
	h.Run("rm " + folder + "*")
}

// deletesByRunc lets the agent delete a dead container of runc. It runs runc, which works within
// the limits of the service.
func (h *packaged) deletesByRunc() {
	h.t.Helper()
	h.Run(`set -e
		mkdir -p /srv/bundle/rootfs/bin && cd /srv/bundle && cp /usr/bin/busybox rootfs/bin/ && runc spec
		sed -i 's/"terminal": true/"terminal": false/; s|^\t*"sh"|"/bin/busybox", "true"|' config.json
		runc run --detach dead </dev/null >/dev/null 2>&1
		until runc state dead | grep -q '"status": "stopped"'; do sleep 0.1; done`)
	h.Eventually("hostler has deleted the dead container", func() bool {
		h.Hostler("gc run --containers --all-unused")
		return h.Run("runc list --quiet") == ""
	})
	h.Run("rm -r /srv/bundle")
}

// upgradedAmidADrain installs a newer version while a person's drain waits for a pod. The drain
// ends with its agent, and pods that were not sent the stop signal yet continue to run.
func (h *packaged) upgradedAmidADrain() {
	h.t.Helper()
	h.Write("/etc/hostler/conf.d/house.yaml", "shutdown: {gracePeriod: 30m, gracePeriodCriticalPods: 1m}\n")
	h.Run("systemctl restart hostler")
	h.AwaitArmed()
	h.Deploy(machine.Pod{Name: "stubborn", Grace: machine.Patience, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}})
	newer := h.release("90")
	drained := make(chan machine.Result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), machine.Patience)
		defer cancel()
		r, err := h.Try(ctx, "hostler drain --all")
		if err != nil {
			h.t.Errorf("hostler drain: %v", err)
		}
		drained <- r
	}()
	h.Eventually("stubborn was sent the stop signal", func() bool {
		lives := h.Work().Pod("stubborn")
		return len(lives) > 0 && !lives[0].Term().IsZero()
	})
	before := agentPID(h.Machine)
	h.dpkg("--install " + newer)
	h.open("it was upgraded amid a drain")
	if pid := agentPID(h.Machine); pid == before {
		h.t.Errorf("the agent has process ID %s as before the upgrade", pid)
	}
	if r := <-drained; r.Code == 0 {
		h.t.Errorf("hostler drain, whose agent was upgraded meanwhile, ended well:\n%s", r.Stdout)
	}
	if !h.Status().Node.Spec.Unschedulable {
		h.t.Error("the Node is not cordoned any more, want it to be until somebody uncordons it")
	}
}

// hung lets systemd restart an agent that hangs: the lock is held all the time.
func (h *packaged) hung() {
	h.t.Helper()
	const dropIn = "/etc/systemd/system/hostler.service.d/soon.conf"
	h.Write(dropIn, "[Service]\nWatchdogSec=30\n")
	h.Run("systemctl daemon-reload && systemctl restart hostler")
	h.AwaitArmed()
	before := stopped(h.Machine, "hostler")
	h.Eventually("systemd has started an agent again that hangs", func() bool {
		if hostlersLocks(h.Machine) == 0 {
			h.t.Error("the lock is not held while the agent hangs")
		}
		pid := agentPID(h.Machine)
		return pid != before && pid != "0"
	})
	h.open("its agent hung")
	if log := h.Journal(0, "-u hostler"); !strings.Contains(log, "Watchdog timeout") {
		h.t.Errorf("the journal says nothing of a watchdog:\n%s", log)
	}
	h.Run("rm " + dropIn + " && rmdir --ignore-fail-on-non-empty $(dirname " + dropIn + ") && systemctl daemon-reload && systemctl restart hostler")
	h.AwaitArmed()
}

// upgradedWithAFault installs versions that refuse the configuration, in a file that a drop-in of
// the unit names: the old agent continues to run.
func (h *packaged) upgradedWithAFault() {
	h.t.Helper()
	for _, c := range []struct{ version, names, faulty, message string }{
		{"91", "Environment=OTHER=x HOSTLER_CONFIG=/srv/own.yaml\n", "imageGC: {highThreshold: 5}\n", "/srv/own.yaml:1: imageGC.highThreshold: "},
		{"92", "ExecStart=\nExecStart=/usr/bin/hostler agent --config /srv/own.yaml\n", "node: {reserved: {memory: 1000Ti}}\n", "/srv/own.yaml:1: node.reserved.memory: "},
	} {
		h.Write("/srv/own.yaml", "imageGC: {minimumAge: 3m}\n")
		h.Write("/etc/systemd/system/hostler.service.d/own.conf", "[Service]\n"+c.names+"LoadCredential=own:/srv/own.yaml\n")
		h.Run("systemctl daemon-reload && systemctl restart hostler")
		h.AwaitArmed()
		before := agentPID(h.Machine)
		if text := h.Run("cat /proc/" + before + "/root/run/credentials/hostler.service/own"); !strings.Contains(text, "minimumAge") {
			h.t.Errorf("the agent has the credential %q, want what the unit's LoadCredential= names", text)
		}
		h.Write("/srv/own.yaml", c.faulty)
		output := h.dpkg("--install " + h.release(c.version))
		if !strings.Contains(output, c.message) || !strings.Contains(output, "NOT restarted") {
			h.t.Errorf("an upgrade with a faulty configuration says\n%s\nwant %q, and that the agent runs on", output, c.message)
		}
		h.open("an upgrade refused its configuration")
		if pid := agentPID(h.Machine); pid != before {
			h.t.Errorf("the agent has process ID %s after an upgrade that refused the configuration, want %s as before", pid, before)
		}
		h.Run("cd /etc/systemd/system && rm /srv/own.yaml hostler.service.d/own.conf && rmdir --ignore-fail-on-non-empty hostler.service.d && systemctl daemon-reload && systemctl restart hostler")
		h.AwaitArmed()
	}
}

// downgraded installs the previous version, with the state of a newer version that it would
// misread. That state is set aside, and the rest of the folder is kept. A Node that a drain has
// cordoned stays cordoned.
func (h *packaged) downgraded() {
	h.t.Helper()
	const nodes, kept = "/var/lib/hostler/nodes.state", "/var/lib/hostler/pki/kept"
	h.Write(kept, "a key\n")
	before := h.Status()
	if before.Cordon == nil || !before.Node.Spec.Unschedulable {
		h.t.Fatalf("before the downgrade the cordon is %+v, want that of the drain", before.Cordon)
	}
	h.Run("systemctl stop hostler")
	h.Write(nodes, ofNewerVersion(h.t, h.Read(nodes)))
	h.dpkg("--install " + machine.Package)
	h.open("it was downgraded")
	aside := strings.Fields(h.Run("ls " + nodes + ".*"))
	if len(aside) != 1 || h.Read(kept) != "a key\n" {
		h.t.Errorf("after a downgrade there are %q, want the state of the newer version, and the key", aside)
	}
	if log := h.Journal(0, "-u hostler"); !strings.Contains(log, "moved unusable state file aside") {
		h.t.Errorf("the journal says nothing of the state that was set aside:\n%s", log)
	}
	var after api.Status
	h.Eventually("the Node is created again, because its file was set aside", func() bool {
		after = h.Status()
		return after.Node != nil && after.Node.UID != "" && after.Node.UID != before.Node.UID
	})
	if after.Cordon == nil || *after.Cordon != *before.Cordon || !after.Node.Spec.Unschedulable {
		h.t.Errorf("after a downgrade the cordon is %+v, unschedulable: %t, want %+v as before", after.Cordon, after.Node.Spec.Unschedulable, before.Cordon)
	}
}

// ofNewerVersion returns a state file as a later version of hostler may write it, with another
// format version.
func ofNewerVersion(t *testing.T, file string) string {
	t.Helper()
	newer := strings.Replace(file, `{"version":1,`, `{"version":2,`, 1)
	if newer == file {
		t.Fatalf("the state file begins with %.40q, want its version", file)
	}
	return newer
}
