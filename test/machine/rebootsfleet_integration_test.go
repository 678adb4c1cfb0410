//go:build integration

package machine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// slowly is a command that reboots a host a second later, or once the file held is gone.
const (
	slowly = "usr/local/lib/reboot-slowly"
	held   = "/run/hold-reboot"
)

// fleet are hosts that share an etcd, and servers on the first two of them.
type fleet struct {
	*testing.T
	etcd  *etcd.Cluster
	hosts []*machine.Machine // node-1, node-2 and so on
	*observer
}

// newFleet boots hosts on these beds. Each runs two containers, of which one takes its time to end.
func newFleet(t *testing.T, beds ...machine.Bed) *fleet {
	t.Helper()
	f := &fleet{T: t, etcd: etcd.For(t, etcd.Options{}), hosts: make([]*machine.Machine, len(beds))}
	f.observer = observe(t, f.etcd.Endpoints())
	var booting sync.WaitGroup
	for i, bed := range beds {
		o := machine.Options{Release: machine.Releases()[i%2], Bed: bed, Uplink: bed == machine.VM}
		address, store := strings.TrimPrefix(f.etcd.Endpoints()[0], "http://"), "{type: etcd, etcd: {endpoints: [\"http://127.0.0.1:2379\"]}}\n"
		if bed == machine.VM {
			store = fmt.Sprintf("{type: etcd, etcd: {endpoints: [\"http://10.0.2.2:%s\"], insecure: true}}\n", relayed(t, address))
		}
		o.Config = fmt.Sprintf("node: {name: node-%d}\ncontrolPlane: %s", i+1, store) +
			workloadConfig() + "reboot: {enabled: true, readyFor: 2s, command: sh /" + slowly + "}\nlease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n"
		o.Files = machine.DockerFiles(o)
		o.Files[slowly] = "sleep 1\nwhile [ -e " + held + " ]; do sleep 0.1; done\nexec systemctl reboot\n"
		if bed == machine.Container {
			maps.Copy(o.Files, machine.ForwardFiles(2379))
		}
		booting.Go(func() {
			m := machine.Boot(t, o)
			if bed == machine.Container {
				m.Forward(2379, address)
			}
			m.Run("systemctl enable --now docker.socket docker.service; mkdir -p " + job.Dir + "; docker load --quiet --input " + job.ImageArchive)
			dockerRun(m, "web", "web", "unless-stopped")
			dockerRunAs(m, "slow", "unless-stopped", append(diaryCommand("slow"), "-ends-slowly", "3s"))
			if i < 2 {
				m.Copy("../../packaging/hostler-server.service", "/usr/lib/systemd/system/hostler-server.service")
				m.Write("/etc/hostler/server.yaml", "store: "+store)
				m.Run("systemctl daemon-reload; systemctl enable --now hostler-server")
			}
			f.hosts[i] = m
		})
	}
	booting.Wait()
	f.hosts[0].Eventually("all hosts are Ready", func() bool {
		s := machine.Answer[answer.Status](f.hosts[0], "fleet", "status")
		return s.Nodes == len(beds) && s.NotReady == 0
	})
	return f
}

// relayed relays a port of 127.0.0.1, which VMs see as 10.0.2.2, to an address of the lab until the test ends.
func relayed(t *testing.T, address string) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lab.Relay(l, address))
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// observer sees all that becomes of Nodes and slots in etcd, in order, also while etcd restarts. It reports
// whenever two hosts have a slot or their turn.
type observer struct {
	t *testing.T

	mu    sync.Mutex // guards what follows
	steps map[string]controlplane.RebootStep
	boots map[string][]string // boot IDs by Node
	group slots.Record
	hooks map[string]func() // by Node and step, of which each is called once
}

// observe observes until the test ends.
func observe(t *testing.T, endpoints []string) *observer {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	o := &observer{t: t, steps: map[string]controlplane.RebootStep{}, boots: map[string][]string{}, hooks: map[string]func(){}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		for response := range client.Watch(ctx, "/hostler/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
			if err := response.Err(); err != nil && ctx.Err() == nil {
				t.Errorf("the observer sees nothing any more: %v", err)
			}
			o.take(response.Events)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-over
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// take takes in changes of some transactions.
func (o *observer) take(events []*clientv3.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, e := range events {
		kind, name, _ := strings.Cut(strings.TrimPrefix(string(e.Kv.Key), "/hostler/"), "/")
		switch {
		case e.Type != clientv3.EventTypePut:
		case kind == "nodes":
			o.takeNode(name, e.Kv.Value)
		case kind == "slots":
			o.group = slots.Record{}
			if err := json.Unmarshal(e.Kv.Value, &o.group); err != nil {
				o.t.Errorf("slots of group %s: %v", name, err)
			}
		}
		if i+1 == len(events) || events[i+1].Kv.ModRevision != e.Kv.ModRevision {
			o.check()
		}
	}
}

func (o *observer) takeNode(name string, value []byte) {
	var node corev1.Node
	if err := json.Unmarshal(value, &node); err != nil {
		o.t.Errorf("Node %s: %v", name, err)
	}
	if boot := node.Status.NodeInfo.BootID; boot != "" && !slices.Contains(o.boots[name], boot) {
		o.boots[name] = append(o.boots[name], boot)
	}
	request, err := controlplane.RebootOf(node.Annotations)
	if err != nil {
		o.t.Errorf("Node %s: %v", name, err)
	}
	if request == nil || request.Step == o.steps[name] {
		return
	}
	o.steps[name] = request.Step
	if hook := o.hooks[hookOf(name, request.Step)]; hook != nil {
		delete(o.hooks, hookOf(name, request.Step))
		go hook()
	}
}

// check reports if more than one host has a slot, or is between the slot and the end of its reboot.
func (o *observer) check() {
	var busy []string
	for name, step := range o.steps {
		if step.NeedsSlot() && step != controlplane.RebootWaiting {
			busy = append(busy, fmt.Sprintf("%s at %s", name, step))
		}
	}
	if len(busy) > 1 || len(o.group.Holders) > 1 {
		o.t.Errorf("hosts down at one time: %v; holders of slots: %+v; want one host", busy, o.group.Holders)
	}
}

func hookOf(node string, step controlplane.RebootStep) string { return node + " " + string(step) }

// on calls a function when a Node is seen to be at a step. The channel is closed once the function has returned.
func (o *observer) on(node string, step controlplane.RebootStep, do func()) (done <-chan struct{}) {
	over := make(chan struct{})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hooks[hookOf(node, step)] = func() {
		defer close(over)
		do()
	}
	return over
}

// booted is how many boots of a host were seen.
func (o *observer) booted(node string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.boots[node])
}

// releases are how slots became free, the last one first.
func (o *observer) releases() []slots.Release {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.group.Releases)
}
