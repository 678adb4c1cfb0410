package owner

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"hostler.io/hostler/internal/tree"
	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/systemd"
)

// kubelets are the process names of a kubelet.
var kubelets = []string{"kubelet", "kubelite", "k3s-server", "k3s-agent"}

// Kubelets are the processes of a host with the name of a kubelet.
type Kubelets struct {
	// Found is this host's kubelet; zero if there is none. Processes of other users do not count,
	// nor those in containers, such as a node of kind. A container can choose its name, and may be
	// in the cgroup of a service, but has CAP_SYS_ADMIN on the host only if it is privileged.
	Found trust.Process
	// Refused are host processes that are not trusted, with the reason.
	Refused []trust.Process
}

// FindKubelets reads the processes below proc.
func FindKubelets(proc string) (k Kubelets) {
	for name, err := range tree.Names(proc) {
		if err != nil {
			return k
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(proc, name, "comm"))
		if err != nil || !slices.Contains(kubelets, string(bytes.TrimSpace(comm))) || ended(proc, name) {
			continue
		}
		switch p, err := trust.Inspect(proc, pid); {
		case err != nil || !slices.Contains(kubelets, p.Name): // the process has ended
		case p.Contained:
		case p.Untrusted == "" && !p.Admin:
			p.Untrusted = "has no CAP_SYS_ADMIN, without which a kubelet cannot mount volumes, it may run in a container"
			fallthrough
		case p.Untrusted != "":
			k.Refused = append(k.Refused, p)
		case k.Found.PID == 0:
			k.Found = p
		}
	}
	return k
}

// Evidence describes the kubelet that was found; empty if there is none.
func (k Kubelets) Evidence() string {
	if k.Found.PID == 0 {
		return ""
	}
	return k.Found.String()
}

// Lock returns the delay lock of this host's kubelet; nil if it holds none. Any user can take a
// lock with the kubelet's name. So a lock counts only if the kubelet or another trusted process of
// its service took it.
func (k Kubelets) Lock(proc string, locks []systemd.InhibitorLock) *systemd.InhibitorLock {
	if k.Found.PID == 0 {
		return nil
	}
	i := slices.IndexFunc(locks, func(l systemd.InhibitorLock) bool {
		if l.Who != Kubelet || l.Mode != "delay" || l.UID != 0 || !l.Inhibits("shutdown") {
			return false
		}
		if int(l.PID) == k.Found.PID {
			return true
		}
		holder, err := trust.Inspect(proc, int(l.PID))
		return err == nil && holder.Untrusted == "" && holder.Admin && holder.Service != "" && holder.Service == k.Found.Service
	})
	if i < 0 {
		return nil
	}
	return &locks[i]
}

// ended reports whether pid is a zombie. A zombie does no job, even if it is not reaped for long.
func ended(proc, pid string) bool {
	stat, err := os.ReadFile(filepath.Join(proc, pid, "stat"))
	if err != nil {
		return false
	}
	// The state follows the process name in parentheses. The name itself may contain parentheses.
	state := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(state) > 0 && (state[0] == 'Z' || state[0] == 'X')
}
