//go:build integration

package machine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// sentinel is the file with which Debian's packages request a reboot.
const sentinel = "/run/reboot-required"

// fleet are hosts that share an etcd, and servers on the first two of them.
type fleet struct {
	*testing.T
	etcd  *etcd.Cluster
	hosts []*machine.Machine
}

// newFleet boots hosts node-1, node-2 and so on. Each runs a container.
func newFleet(t *testing.T, hosts int) *fleet {
	t.Helper()
	cluster, err := etcd.Start(t.Context(), etcd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &fleet{T: t, etcd: cluster, hosts: make([]*machine.Machine, hosts)}
	address := strings.TrimPrefix(cluster.Endpoints()[0], "http://")
	var booting sync.WaitGroup
	for i := range hosts {
		release := machine.Releases()[i%2]
		o := machine.Options{Release: release, Bed: machine.Container}
		o.Config = fmt.Sprintf("node: {name: node-%d}\ncontrolPlane: {type: etcd, etcd: {endpoints: [\"http://127.0.0.1:2379\"]}}\n", i+1) +
			"reboot: {enabled: true, readyFor: 2s}\nlease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n"
		o.Files = machine.DockerFiles(o)
		maps.Copy(o.Files, machine.ForwardFiles(2379))
		booting.Go(func() {
			m := machine.Boot(t, o)
			m.Forward(2379, address)
			m.Run("systemctl enable --now docker.socket docker.service; mkdir -p " + job.Dir + "; docker load --quiet --input " + job.ImageArchive)
			dockerRun(m, "web", "web", "unless-stopped")
			if i < 2 {
				m.Copy("../../packaging/hostler-server.service", "/usr/lib/systemd/system/hostler-server.service")
				m.Write("/etc/hostler/server.yaml", "store: {type: etcd, etcd: {endpoints: [\"http://127.0.0.1:2379\"]}}\n")
				m.Run("systemctl daemon-reload; systemctl enable --now hostler-server")
			}
			f.hosts[i] = m
		})
	}
	booting.Wait()
	f.hosts[0].Eventually("all hosts are Ready", func() bool {
		s := machine.Answer[answer.Status](f.hosts[0], "fleet", "status")
		return s.Nodes == hosts && s.NotReady == 0
	})
	return f
}

// nodes returns the stored Nodes.
func (f *fleet) nodes() (all []corev1.Node) {
	f.Helper()
	text, err := f.etcd.Ctl(f.Context(), "get", "--prefix", "/hostler/nodes/", "--print-value-only")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(text) {
		var n corev1.Node
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			f.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// busy returns the hosts that are cordoned, or at a step that needs a slot.
func (f *fleet) busy() (names []string) {
	f.Helper()
	for _, n := range f.nodes() {
		r, err := controlplane.RebootOf(n.Annotations)
		if err != nil {
			f.Fatal(err)
		}
		if n.Spec.Unschedulable || r != nil && r.Step.NeedsSlot() && r.Step != controlplane.RebootWaiting {
			names = append(names, n.Name)
		}
	}
	return names
}

// watched returns the largest set of busy hosts while do runs.
func (f *fleet) watched(do func()) (most []string) {
	f.Helper()
	end, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			if names := f.busy(); len(names) > len(most) {
				most = names
			}
			select {
			case <-end:
				return
			default:
			}
		}
	}()
	do()
	close(end)
	<-over
	return most
}

// rebootAll reboots hosts at once, and returns when each is up again and its reboot is over.
func (f *fleet) rebootAll(hosts []*machine.Machine, begin string) {
	f.Helper()
	var waits sync.WaitGroup
	for _, m := range hosts {
		waits.Go(func() {
			down := m.AwaitDown(begin, func() error { m.Run(begin); return nil })
			if !down.NewKernel {
				f.Errorf("%s has not rebooted", m)
			}
			m.Eventually("the reboot is over", func() bool { r := m.Status().Reboot; return r.Request != nil && r.Step == controlplane.RebootDone })
		})
	}
	waits.Wait()
}

// settled checks that nothing is left of reboots.
func (f *fleet) settled() {
	f.Helper()
	f.hosts[0].Eventually("nobody holds a slot or waits for one", func() bool {
		for _, g := range machine.Answer[answer.Slots](f.hosts[0], "fleet", "slots").Groups {
			if len(g.Holders)+len(g.Waiting) > 0 {
				return false
			}
		}
		return true
	})
	for _, m := range f.hosts {
		if s := m.Status(); s.Node == nil || s.Node.Spec.Unschedulable {
			f.Errorf("%s is cordoned after its reboot", m)
		}
		if names := strings.TrimSpace(m.Run("docker ps --format '{{.Names}}'")); names != "web" {
			f.Errorf("containers of %s after its reboot = %q, want web", m, names)
		}
	}
}

// TestHostsRebootOneAfterTheOther requests a reboot on three hosts at once, with a file.
func TestHostsRebootOneAfterTheOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	if most := f.watched(func() { f.rebootAll(f.hosts, "touch "+sentinel) }); len(most) != 1 {
		t.Errorf("busy at one time: %v, want one host", most)
	}
	f.settled()

	// A person's cordon stays, and a cancelled request leads to no reboot.
	first, boot := f.hosts[2], f.hosts[2].BootID()
	first.Run("hostler cordon && touch " + sentinel)
	f.rebootAll(f.hosts[2:], "true")
	if s := first.Status(); !s.Node.Spec.Unschedulable || first.BootID() == boot {
		t.Errorf("unschedulable = %t after the reboot, want the cordon of a person", s.Node.Spec.Unschedulable)
	}
	first.Run("hostler uncordon && hostler reboot --reason test && hostler reboot --cancel")
	if r := machine.Answer[reboot.Report](first, "reboot", "--dry-run"); r.Cancelled != "root" {
		t.Errorf("report = %+v, want that it was cancelled by root", r.Request)
	}
	f.settled()
}
