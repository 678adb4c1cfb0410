package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// orchestrators lists the services that restart pods while hostler stops them: a kubelet that does not
// guard the shutdown, and k3s, RKE2 and k0s. The latter run a kubelet and its containerd as children.
// When these services stop, also at a shutdown, their pods keep running.
func orchestrators() []string {
	return []string{"kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service", "k0scontroller.service", "k0sworker.service"}
}

// stopFirst checks the services that would restart pods while hostler stops them.
func stopFirst(f Facts) Check {
	if f.Systemd.Missing || f.Systemd.Problem != "" || len(f.Phases) == 0 || f.delegated() {
		return Check{}
	}
	var missing []string
	var found faults
	var fine Check
	if len(f.StopFirst) > 0 {
		fine = ok("stopped before the pods: %s", strings.Join(f.StopFirst, ", "))
	}
	for _, u := range f.Systemd.Orchestrators {
		switch named := slices.Contains(f.StopFirst, u.Name); {
		case u.Err != nil:
			fine = unknown("whether a service would restart pods", u.Err)
		case named && u.LoadState != "loaded":
			found.add(warn("correct shutdown.stopFirst; `systemctl list-units --type=service` lists the names",
				"%s, which should stop before the pods, does not exist (%s)", u.Name, u.LoadState))
		case !named && u.ActiveState == "active":
			missing = append(missing, u.Name)
		}
	}
	if len(missing) > 0 {
		found.add(warn(fmt.Sprintf("set shutdown: {enabled: true, stopFirst: [%s]}, see /usr/share/doc/hostler/docs/start/kubernetes.md; then %s", strings.Join(missing, ", "), f.fixes().restartAgent()),
			"%s would restart pods while hostler stops them", strings.Join(missing, ", ")))
	}
	return found.or(fine)
}
