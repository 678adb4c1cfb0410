//go:build integration

package machine_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
)

// keptForADay collects everything that may be removed, after a boot. The pods of the last shutdown
// stay, with their containers, sandboxes and logs; those of the shutdown before are removed.
func keptForADay(t *testing.T, m *machine.Machine) {
	last := m.LastShutdown()
	if last == nil {
		t.Fatal("LastShutdown() = nil, want one on record")
	}
	var ofLast, logs []string
	for _, p := range last.Pods {
		uid := cmp.Or(p.UID, p.ID)
		ofLast = append(ofLast, fmt.Sprintf(`'labels."io.kubernetes.pod.uid"==%s'`, uid))
		logs = append(logs, fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, uid))
	}
	slices.Sort(logs)
	containers := func(of ...string) []string { // including sandboxes
		ids := strings.Fields(m.Run("ctr --namespace k8s.io containers list -q " + strings.Join(of, " ")))
		slices.Sort(ids)
		return ids
	}
	folders := func() []string { return strings.Fields(m.Run("LC_ALL=C ls /var/log/pods")) }
	kept := containers(ofLast...)
	if len(kept) != 2*len(last.Pods) || len(containers()) == len(kept) || len(folders()) == len(logs) {
		t.Fatalf("containerd has %q, of these %q of the last shutdown's pods, and their logs are among %q; want a container and a sandbox of each, and others, too", containers(), kept, folders())
	}
	// Objects that have just ended stay for a minute anyway.
	m.Run(`date --set "+2 minutes"`)
	m.Hostler("gc run --containers --all-unused")
	m.Hostler("gc run --containers --all-unused") // logs are removed after their pods
	m.Run(`date --set "-2 minutes"`)
	if left := containers(); !slices.Equal(left, kept) {
		t.Errorf("containerd has %q after a collection, want the containers and sandboxes of the last shutdown, %q", left, kept)
	}
	if left := folders(); !slices.Equal(left, logs) {
		t.Errorf("/var/log/pods holds %q after a collection, want the logs of the last shutdown's pods, %q", left, logs)
	}
}
