package fleetsim

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is everything that a run depends on.
type plan struct {
	Seed    uint64        `json:"seed"`
	Engine  engine        `json:"engine"`
	Servers int           `json:"servers"`
	Hosts   int           `json:"hosts"`
	Length  time.Duration `json:"length"`            // without the time after the faults
	Clients int           `json:"clients,omitempty"` // of FleetLock
	Policy  policy        `json:"policy"`
	// Kubelets run the pods: the servers evict them before a reboot.
	Kubelets bool    `json:"kubelets,omitempty"`
	Faults   []fault `json:"faults"`
}

// engine is what the store behaves like.
type engine string

const (
	etcd       engine = "etcd"
	kubernetes engine = "kubernetes"
)

// kind is a kind of fault.
type kind string

// fault is something that happens from a time to a time, both counted from the start.
type fault struct {
	Kind kind          `json:"kind"`
	On   string        `json:"on,omitempty"`   // a process, a host; empty for the store or for all
	What string        `json:"what,omitempty"` // a kind of objects, a moment, or another detail
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
}

func (f fault) String() string {
	words := []string{string(f.Kind)}
	for _, word := range []string{f.On, f.What} {
		if word != "" {
			words = append(words, word)
		}
	}
	return fmt.Sprintf("%s from %v to %v", strings.Join(words, " "), f.From, f.To)
}

func (p plan) String() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// zone returns the zone of a host.
func (p plan) zone(host int) string { return string(rune('a' + host%2)) }

// draw returns a number that depends only on the seed and on the names.
func (p plan) draw(names ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintln(h, names...)
	return rand.New(rand.NewPCG(p.Seed, h.Sum64()))
}

// warmup is the time without faults at the start, in which all hosts register and leaders are elected.
const warmup = 90 * time.Second

// newPlan draws a plan from a seed.
func newPlan(seed uint64) plan {
	p := plan{Seed: seed, Engine: etcd, Servers: 3}
	r := p.draw("plan")
	if r.IntN(2) == 0 {
		p.Engine = kubernetes
	}
	p.Hosts, p.Length = 3+r.IntN(5), 7*time.Minute
	if r.IntN(100) < 3 {
		p.Hosts = 30 + r.IntN(71)
	}
	p.Clients = max(0, p.draw("clients").IntN(5)-2) // most fleets have none
	p.Policy = newPolicy(p.draw("policy"))
	p.Kubelets = p.Engine == kubernetes && p.draw("kubelets").IntN(3) > 0
	for range 2 + r.IntN(4) {
		p.Faults = append(p.Faults, p.newFaults(r, catalogue(p.Engine))...)
	}
	p.Faults = append(p.Faults, p.newFaults(r, aimed(p.Engine))...) // of those, most others matter rarely
	slices.SortStableFunc(p.Faults, func(a, b fault) int { return int(a.From - b.From) })
	return p
}

// grace is how long a host may not renew its Lease.
func (p plan) grace() time.Duration {
	if p.Engine == kubernetes {
		return 50 * time.Second
	}
	return leaseDuration
}

// newFaults draws one of all faults, or several that belong together.
func (p plan) newFaults(r *rand.Rand, all []drawn) []fault {
	make := all[r.IntN(len(all))]
	from := warmup + time.Duration(r.Int64N(int64(p.Length-warmup)/2)).Round(time.Millisecond)
	faults := make(p, r)
	for i := range faults {
		faults[i].From = max(faults[i].From+from, warmup/2)
		faults[i].To = min(faults[i].To+from, p.Length)
	}
	return slices.DeleteFunc(faults, func(f fault) bool { return f.From >= p.Length })
}

// between draws a duration.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(r.Int64N(int64(most-least)))).Round(time.Millisecond)
}

func (p plan) anyServer(r *rand.Rand) string { return serverName(r.IntN(p.Servers)) }
func (p plan) anyHost(r *rand.Rand) string   { return hostName(r.IntN(p.Hosts)) }

func serverName(i int) string { return fmt.Sprintf("server-%d", i+1) }
func hostName(i int) string   { return fmt.Sprintf("host-%02d", i+1) }
