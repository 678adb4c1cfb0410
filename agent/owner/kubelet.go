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

// kubelets are the process names under which a kubelet runs.
var kubelets = []string{"kubelet", "kubelite", "k3s-server", "k3s-agent"}

// Kubelets are the processes of a host that are named as its kubelet may be.
type Kubelets struct {
	// Found is this host's kubelet; zero if there is none. A process of another user, or in a
	// container such as a node of kind's, is not.
	Found trust.Process
	// Refused are those on the host itself that are not trusted, with why.
	Refused []trust.Process
}

// FindKubelets looks for them below proc, the proc file system of the host.
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
		case err != nil || !slices.Contains(kubelets, p.Name): // it has ended meanwhile
		case p.Contained:
		case p.Untrusted != "":
			k.Refused = append(k.Refused, p)
		case k.Found.PID == 0:
			k.Found = p
		}
	}
	return k
}

// Evidence is what shows that this host has a kubelet; empty if it has none.
func (k Kubelets) Evidence() string {
	if k.Found.PID == 0 {
		return ""
	}
	return k.Found.String()
}

// Lock is the lock by which this host's kubelet delays shutdowns; nil if it holds none. Any user can
// take a lock with the kubelet's name. So a lock counts only if the kubelet or another trusted process
// of its service took it.
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
		return err == nil && holder.Untrusted == "" && holder.Service != "" && holder.Service == k.Found.Service
	})
	if i < 0 {
		return nil
	}
	return &locks[i]
}

// ended reports whether pid is a zombie, which does no job any more, however long
// nobody reaps it.
func ended(proc, pid string) bool {
	stat, err := os.ReadFile(filepath.Join(proc, pid, "stat"))
	if err != nil {
		return false
	}
	// The state follows the name in parentheses, which may hold some itself.
	state := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(state) > 0 && (state[0] == 'Z' || state[0] == 'X')
}
