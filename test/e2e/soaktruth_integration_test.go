//go:build integration && soak

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane/slots"
)

// soakGrace is how recent a renewal must be for a host that is surely alive.
const soakGrace = 35 * time.Second

// soakTruth knows which hosts live and reboot, and compares what servers write with that. It is safe for
// concurrent use.
type soakTruth struct {
	t      testing.TB
	client *clientv3.Client
	hosts  func(name string) *soakHost

	mu       sync.Mutex // guards the fields below
	judging  bool
	isDown   map[string]time.Time // since when hosts give no sign of life
	amid     map[string]bool      // hosts that have run reboot.command and have not booted; false if their slot was released
	unknown  map[string]bool      // Nodes that are Unknown
	trouble  time.Time            // when etcd, or a server, last had a fault
	most     int                  // hosts that rebooted at once
	deaths   int                  // Nodes that became Unknown
	expected int                  // of them, those of hosts that were down long enough to be surely noticed
	reread   chan struct{}        // ends the watch, which lists again
	stored   soakStored
}

// observeSoak observes until the test ends.
func observeSoak(s *soak) *soakTruth {
	client, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 5 * time.Second})
	check(s.t, err)
	o := &soakTruth{
		t: s.t, client: client, isDown: map[string]time.Time{}, amid: map[string]bool{}, unknown: map[string]bool{}, reread: make(chan struct{}, 1), stored: newSoakStored(s.t),
		hosts: func(name string) *soakHost {
			if i := slices.IndexFunc(s.hosts, func(h *soakHost) bool { return h.name == name }); i >= 0 {
				return s.hosts[i]
			}
			return nil
		},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { o.run(ctx) })
	running.Go(func() { o.tend(ctx) })
	s.t.Cleanup(func() {
		cancel()
		running.Wait()
		check(s.t, client.Close())
	})
	return o
}

// run lists and watches the fleet until ctx ends.
func (o *soakTruth) run(ctx context.Context) {
	for ctx.Err() == nil {
		watching, cancel := context.WithCancel(ctx)
		list, err := o.client.Get(watching, soakPrefix, clientv3.WithPrefix())
		if err != nil {
			time.Sleep(time.Second)
		} else {
			o.list(list.Kvs) // a restored store has Nodes that were Unknown at the time of the backup
			watch := o.client.Watch(watching, soakPrefix, clientv3.WithPrefix(), clientv3.WithRev(list.Header.Revision+1))
			for again := false; !again; {
				select {
				case <-o.reread:
					again = true
				case response, open := <-watch:
					again = !open || response.Err() != nil
					for _, e := range response.Events {
						o.change(strings.TrimPrefix(string(e.Kv.Key), soakPrefix), e.Kv.Value)
					}
				}
			}
		}
		cancel()
	}
}

// list takes all that is stored.
func (o *soakTruth) list(all []*mvccpb.KeyValue) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stored.restart()
	for _, kv := range all {
		path := strings.TrimPrefix(string(kv.Key), soakPrefix)
		o.stored.take(path, kv.Value)
		o.node(path, kv.Value, false)
	}
}

// change takes what was written just now; no value for a deletion.
func (o *soakTruth) change(path string, value []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.judging {
		o.stored.check(path, value)
	}
	o.stored.take(path, value)
	o.node(path, value, true)
}

// node takes a Node. written reports whether it was stored just now. The caller holds mu.
func (o *soakTruth) node(path string, value []byte, written bool) {
	node := &corev1.Node{}
	if !strings.HasPrefix(path, "nodes/") || json.Unmarshal(value, node) != nil {
		return // another object, or a deletion
	}
	// At its start, an agent itself writes Unknown, with another reason. The watch may be late, so the write has its own time.
	c := condition(api.Status{Node: node}, corev1.NodeReady)
	is, at := c.Status == corev1.ConditionUnknown && strings.HasPrefix(c.Reason, "NodeStatus"), c.LastTransitionTime.Time
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute && t.TimeAdded != nil && !is {
			is, at = true, t.TimeAdded.Time
		}
	}
	was := o.unknown[node.Name]
	if o.unknown[node.Name] = is; was || !is || !written || !o.judging {
		return
	}
	o.deaths++
	go o.judge(node.Name, at)
}

// judge fails if the host had renewed its Lease shortly before a moment.
func (o *soakTruth) judge(name string, at time.Time) {
	h := o.hosts(name)
	o.mu.Lock()
	_, down := o.isDown[name]
	o.mu.Unlock()
	if h == nil || down {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := h.api.Status(ctx)
	if err != nil || s.Lease == nil || s.Lease.Spec.RenewTime == nil {
		return
	}
	renewed := s.Lease.Spec.RenewTime.Time
	o.t.Logf("%s is Unknown at %s, its agent renewed its Lease at %s", name, at.UTC().Format("15:04:05"), renewed.UTC().Format("15:04:05"))
	if renewed.Before(at) && at.Sub(renewed) < soakGrace {
		o.t.Errorf("%s was made Unknown or unreachable, %v after it had renewed its Lease", name, at.Sub(renewed))
	}
}

// begin begins to judge.
func (o *soakTruth) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judging = true
}

// down records that a host gives no sign of life from now on.
func (o *soakTruth) down(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isDown[name] = time.Now()
}

// up records that a host lives again. If it was away for long and nothing else had a fault, it must be Unknown now.
func (o *soakTruth) up(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	since, was := o.isDown[name]
	if was && time.Since(since) > 2*time.Minute && o.trouble.Before(since) {
		if o.expected++; !o.unknown[name] {
			o.t.Errorf("%s was away for %v, and its Node is not Unknown", name, time.Since(since))
		}
	}
	delete(o.isDown, name)
	delete(o.amid, name)
}

// deleted records that a person deletes a Node, which may also free its slot.
func (o *soakTruth) deleted(name string) {
	o.excused(name)
	o.down(name)
}

// rebooting records that a host has run reboot.command.
func (o *soakTruth) rebooting(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.amid[name]; !known {
		o.amid[name] = true
	}
	n := 0
	for _, counts := range o.amid {
		if counts {
			n++
		}
	}
	if o.most = max(o.most, n); n > soakSlots {
		o.t.Errorf("%d hosts reboot at once: %v", n, o.amid)
	}
}

// excused records that a person takes the slot from a host.
func (o *soakTruth) excused(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.amid[name] = false
}

// shaken records a fault of etcd or of a server.
func (o *soakTruth) shaken() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trouble = time.Now()
}

// restored records that the store went back to an earlier state.
func (o *soakTruth) restored() {
	o.shaken()
	o.mu.Lock()
	o.stored.restored = true
	o.mu.Unlock()
	select {
	case o.reread <- struct{}{}:
	default:
	}
}

// unwell returns why the fleet is not well; empty if it is.
func (o *soakTruth) unwell(hosts []*soakHost) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, err := o.client.Get(ctx, "/hostler/nodes/", clientv3.WithPrefix())
	if err != nil {
		return err.Error()
	}
	nodes := map[string]*corev1.Node{}
	for _, kv := range list.Kvs {
		node := &corev1.Node{}
		if err := json.Unmarshal(kv.Value, node); err != nil {
			return err.Error()
		}
		nodes[node.Name] = node
	}
	for _, h := range hosts {
		n := nodes[h.name]
		switch {
		case n == nil:
			return h.name + " has no Node"
		case condition(api.Status{Node: n}, corev1.NodeReady).Status != corev1.ConditionTrue:
			return h.name + " is not Ready"
		case n.Spec.Unschedulable || len(n.Spec.Taints) > 0:
			return fmt.Sprintf("%s has taints %v", h.name, n.Spec.Taints)
		}
	}
	record := slots.Record{}
	group, err := o.client.Get(ctx, "/hostler/slots/default")
	if err == nil && len(group.Kvs) > 0 {
		err = json.Unmarshal(group.Kvs[0].Value, &record)
	}
	if err != nil || len(record.Holders)+len(record.Waiting) > 0 {
		return fmt.Sprintf("slots are held or waited for: %v %+v", err, record.State)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stored.left()
}

// summarize prints what was seen.
func (o *soakTruth) summarize(t *testing.T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("%4d Nodes became Unknown; %d hosts were away so long that this was certain", o.deaths, o.expected)
	t.Logf("%4d hosts at most rebooted at once, of %d slots", o.most, soakSlots)
	for _, what := range slices.Sorted(maps.Keys(o.stored.counts)) {
		t.Logf("%4d %s", o.stored.counts[what], what)
	}
}

// link connects one process with all members of etcd. A link that is cut carries nothing, and closes nothing.
type link struct {
	listeners []net.Listener

	mu    sync.Mutex    // guards whole
	whole chan struct{} // closed while the link is whole
}

// newLink returns a link that lasts until the test ends.
func (s *soak) newLink() *link {
	l := &link{whole: make(chan struct{})}
	l.heal()
	for _, m := range s.Members {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		check(s.t, err)
		l.listeners = append(l.listeners, listener)
		go l.serve(listener, strings.TrimPrefix(m.Endpoint, "http://"))
	}
	s.t.Cleanup(func() {
		for _, listener := range l.listeners {
			_ = listener.Close()
		}
	})
	return l
}

// endpoints are the members of etcd as this process reaches them.
func (l *link) endpoints() string {
	var all []string
	for _, listener := range l.listeners {
		all = append(all, "http://"+listener.Addr().String())
	}
	return strings.Join(all, ", ")
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = make(chan struct{})
}

func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.whole)
}

// wait waits until the link is whole.
func (l *link) wait() {
	l.mu.Lock()
	whole := l.whole
	l.mu.Unlock()
	<-whole
}

// serve carries connections until the listener is closed.
func (l *link) serve(listener net.Listener, to string) {
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			l.wait()
			far, err := net.DialTimeout("tcp", to, 5*time.Second)
			if err != nil {
				return
			}
			defer far.Close()
			done := make(chan struct{}, 2)
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(gated{pair[0], l}, pair[1])
					done <- struct{}{}
				}()
			}
			<-done
		}()
	}
}

// gated writes only while its link is whole.
type gated struct {
	io.Writer
	link *link
}

// Write implements io.Writer.
func (g gated) Write(data []byte) (int, error) {
	g.link.wait()
	return g.Writer.Write(data)
}
