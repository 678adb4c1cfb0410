package gather

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/status/probe"
)

// wire is a network with a DNS server, whose state a test sets.
type wire struct {
	*Network

	mu       sync.Mutex // guards the fields below
	server   string     // in the kubeconfig; empty if there is none
	endpoint string
	addrs    []string // of the host
	names    []string // DNS answers; empty if DNS fails
	hangs    bool     // DNS hangs
	asked    int      // number of DNS requests
	changes  chan<- struct{}
	reported int // number of reported changes
	lost     int // number of lost source addresses
	source   string
	wants    func() []netip.Addr
}

var errNoName = errors.New("no such host")

// wired runs a test with a network in a synctest bubble.
func wired(t *testing.T, w *wire, test func(w *wire)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w.open()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx, func() { w.set(func() { w.reported++ }) }) }()
		synctest.Wait()
		test(w)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want %v", err, context.Canceled)
		}
	})
}

// open creates the network, without running it.
func (w *wire) open() {
	w.wants = func() []netip.Addr { return nil }
	w.Network = NewNetwork(NetworkOptions{
		ControlPlane: func() (string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.server == "" {
				return "", errors.New("no kubeconfig")
			}
			return w.server, nil
		},
		Lost:     func() { w.set(func() { w.lost++ }) },
		Endpoint: func() string { w.mu.Lock(); defer w.mu.Unlock(); return w.endpoint },
		Scan: func(to ...netip.AddrPort) (n probe.Network) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, a := range w.addrs {
				n.Addresses = append(n.Addresses, probe.Address{IP: netip.MustParseAddr(a)})
			}
			for _, t := range to {
				route := probe.TargetRoute{To: t}
				if w.source != "" {
					route.Source = netip.MustParseAddr(w.source)
				}
				n.ControlPlane = append(n.ControlPlane, route)
			}
			return n
		},
		Watch: func(ctx context.Context, wants func() []netip.Addr, changes chan<- struct{}) error {
			w.set(func() { w.changes, w.wants = changes, wants })
			select {
			case changes <- struct{}{}:
				<-ctx.Done()
			case <-ctx.Done():
			}
			return ctx.Err()
		},
		Lookup: func(ctx context.Context, _, host string) (list []netip.Addr, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked++
			if w.hangs {
				w.mu.Unlock()
				<-ctx.Done()
				w.mu.Lock()
				return nil, ctx.Err()
			}
			for _, a := range w.names {
				list = append(list, netip.MustParseAddr(a))
			}
			if len(list) == 0 || !strings.HasPrefix(w.server, host) {
				return nil, errNoName
			}
			return list, nil
		},
	})
}

// set changes the state.
func (w *wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// counts returns the number of reported changes and of DNS requests.
func (w *wire) counts() (reported, asked int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reported, w.asked
}

// changed reports a change of the network, and waits until it is handled.
func (w *wire) changed() {
	w.changes <- struct{}{}
	synctest.Wait()
}

// routes returns the addresses of the control plane, in order.
func (w *wire) routes() string {
	var list []string
	for _, route := range w.Current().ControlPlane {
		list = append(list, route.To.String())
	}
	return strings.Join(list, " ")
}

func (w *wire) want(t *testing.T, when, routes string, resolving bool) {
	t.Helper()
	synctest.Wait()
	if got := w.routes(); got != routes || w.Current().Resolving != resolving {
		t.Errorf("%s: ways to %q, resolving %v, want %q, %v", when, got, w.Current().Resolving, routes, resolving)
	}
	var wanted []string
	for _, ip := range w.wants() {
		wanted = append(wanted, ip.String())
	}
	for _, ip := range wanted {
		if !strings.Contains(routes, ip) {
			t.Errorf("%s: routes to %v are watched, want %q", when, wanted, routes)
		}
	}
}

func TestTheNetworkIsFollowed(t *testing.T) {
	wired(t, &wire{addrs: []string{"10.0.0.5"}}, func(w *wire) {
		if reported, _ := w.counts(); reported != 0 {
			t.Errorf("reported %d changes at the start, want none", reported)
		}
		w.changed()
		if reported, _ := w.counts(); reported != 0 {
			t.Errorf("reported %d changes where nothing has changed, want none", reported)
		}
		w.set(func() { w.addrs = []string{"10.0.0.6"} })
		w.changed()
		reported, _ := w.counts()
		if got := w.Current().Addresses; reported != 1 || len(got) != 1 || got[0].IP != netip.MustParseAddr("10.0.0.6") {
			t.Errorf("reported %d changes, addresses %v, want the new one", reported, got)
		}
	})
}

func TestAControlPlaneGivenByItsAddressNeedsNoName(t *testing.T) {
	for server, want := range map[string]string{"10.1.2.3:6443": "10.1.2.3:6443", "[fd00::3]:443": "[fd00::3]:443"} {
		w := &wire{server: server}
		w.open()
		if got := w.routes(); got != want || w.Current().Resolving {
			t.Errorf("before it runs: ways to %q, resolving %v, want %q", got, w.Current().Resolving, want)
		}
		wired(t, w, func(w *wire) {
			time.Sleep(time.Hour)
			w.changed()
			w.want(t, "after an hour", want, false)
			if _, asked := w.counts(); asked != 0 {
				t.Errorf("DNS was asked %d times, want never", asked)
			}
		})
	}
}

func TestANameIsResolvedRegularly(t *testing.T) {
	wired(t, &wire{server: "api.example:6443", names: []string{"fd00::3", "10.1.2.3", "::ffff:10.1.2.4"}}, func(w *wire) {
		const all = "10.1.2.3:6443 10.1.2.4:6443 [fd00::3]:6443"
		w.want(t, "at the start", all, false)
		if reported, asked := w.counts(); reported != 1 || asked != 1 {
			t.Errorf("reported %d changes, %d DNS queries, want once each", reported, asked)
		}
		time.Sleep(time.Hour + time.Second)
		reported, before := w.counts()
		if before != 13 || reported != 1 {
			t.Errorf("after an hour: reported %d changes, %d DNS queries, want 1 and 13", reported, before)
		}
		for range 60 { // containers start and stop
			time.Sleep(time.Second)
			w.changed()
		}
		time.Sleep(30 * time.Second)
		_, asked := w.counts()
		if more := asked - before; more < 2 || more > 4 {
			t.Errorf("DNS was asked %d times in 60 changes of the network within a minute, want every half minute", more)
		}
		w.set(func() { w.names = nil })
		time.Sleep(24 * time.Hour)
		w.want(t, "after a day without DNS", all, false)
	})
}

func TestRotatedAnswersDoNotChangeTheRoutes(t *testing.T) {
	wired(t, &wire{server: "api.example:6443", names: []string{"10.2.0.1"}}, func(w *wire) {
		turns := []string{"10.1.0.1", "10.2.0.1", "10.3.0.1"}
		for i := range 1000 {
			w.set(func() { w.names = turns[i%3 : i%3+1] })
			time.Sleep(resolveInterval)
			synctest.Wait()
			if got := w.routes(); !strings.HasPrefix(got, "10.2.0.1:6443") {
				t.Fatalf("after %d answers: ways to %s, want that first which was said first", i, got)
			}
		}
		w.want(t, "in the end", "10.2.0.1:6443 10.1.0.1:6443 10.3.0.1:6443", false)
		w.set(func() { w.names = []string{"10.3.0.1"} })
		time.Sleep(answerLifetime + 3*resolveInterval)
		w.want(t, "an hour after the others were said last", "10.3.0.1:6443", false)
		for i := range byte(200) {
			w.set(func() { w.names = []string{netip.AddrFrom4([4]byte{10, 4, 0, i}).String()} })
			w.Again()
			synctest.Wait()
		}
		if n := len(w.Current().ControlPlane); n != maxAnswers {
			t.Errorf("%d ways are looked up after 200 answers, want at most %d", n, maxAnswers)
		}
	})
}

func TestDNSThatDoesNotAnswerBlocksNothing(t *testing.T) {
	wired(t, &wire{server: "api.example:6443", hangs: true}, func(w *wire) {
		w.want(t, "at the start", "", true)
		w.set(func() { w.addrs = []string{"10.0.0.5"} }) // DHCP is done
		began := time.Now()
		w.changed()
		if got := w.Current().Addresses; len(got) != 1 || time.Since(began) != 0 {
			t.Errorf("addresses %v after %v, want the new one at once", got, time.Since(began))
		}
		w.set(func() { w.hangs, w.names = false, []string{"10.1.2.3"} })
		time.Sleep(10 * time.Second)
		w.want(t, "with DNS back", "10.1.2.3:6443", false)
	})
	wired(t, &wire{server: "api.example:6443", hangs: true}, func(w *wire) {
		time.Sleep(resolvingFor + time.Second)
		w.want(t, "after a minute", "", false)
		reported, before := w.counts()
		if reported != 1 {
			t.Errorf("reported %d changes, want one when the wait ends", reported)
		}
		time.Sleep(time.Hour)
		_, asked := w.counts()
		if n := asked - before; n < 50 || n > 65 {
			t.Errorf("DNS was asked %d times in an hour without an answer, want about once a minute", n)
		}
		w.set(func() { w.hangs, w.names = false, []string{"10.1.2.3"} })
		w.changed()
		w.want(t, "at the next change of the network", "10.1.2.3:6443", false)
	})
}

func TestANewServerIsUsed(t *testing.T) {
	w := &wire{names: []string{"10.1.2.3"}}
	wired(t, w, func(w *wire) {
		w.want(t, "without a kubeconfig", "", false)
		w.set(func() { w.server, w.endpoint = "api.example:6443", "https://api.example:6443" })
		w.Current() // like the next check of the host
		w.want(t, "once there is one", "10.1.2.3:6443", false)
		w.set(func() { w.server, w.names = "other.example:6443", []string{"10.9.0.1"} })
		w.Again() // like a reload
		w.want(t, "after a reload", "10.9.0.1:6443", false)
		w.set(func() { w.server = "" })
		w.Again()
		w.want(t, "while the file is replaced", "10.9.0.1:6443", false)
		w.set(func() { w.server = "10.8.0.1:6443" })
		time.Sleep(resolveInterval)
		w.want(t, "without a notification", "10.8.0.1:6443", false)
	})
	if w.asked != 2 { // nothing runs any more
		t.Errorf("DNS was asked %d times, want once for each name", w.asked)
	}
}

func TestAReloadWhileANameIsResolvedIsNotForgotten(t *testing.T) {
	wired(t, &wire{server: "api.example:6443", hangs: true}, func(w *wire) {
		w.set(func() { w.server = "10.7.0.1:6443" })
		w.Again()
		time.Sleep(resolveTimeout)
		w.want(t, "once it is given up", "10.7.0.1:6443", false)
	})
}

func TestStartsOfContainersCauseFewLookups(t *testing.T) {
	wired(t, &wire{server: "api.example:6443"}, func(w *wire) {
		for range 600 { // changes within a minute, each with a failed DNS request
			time.Sleep(100 * time.Millisecond)
			w.changed()
		}
		if _, asked := w.counts(); asked < 50 || asked > 62 {
			t.Errorf("DNS was asked %d times in 600 changes within a minute, want once a second", asked)
		}
	})
}

func TestConnectionsFromAnAddressThatIsGoneAreGivenUp(t *testing.T) {
	wired(t, &wire{server: "10.1.2.3:6443", addrs: []string{"10.0.0.5", "10.9.0.5"}, source: "10.0.0.5"}, func(w *wire) {
		for _, step := range []struct {
			what   string
			addrs  []string
			source string
			lost   int // so far
		}{
			{"another address goes", []string{"10.0.0.5"}, "10.0.0.5", 0},
			{"another one comes", []string{"10.0.0.5", "10.0.0.6"}, "10.0.0.5", 0},
			{"the route moves to that", []string{"10.0.0.5", "10.0.0.6"}, "10.0.0.6", 0},
			{"the one of before goes", []string{"10.0.0.6"}, "10.0.0.6", 0},
			{"it is replaced", []string{"10.0.0.7"}, "10.0.0.7", 1},
			{"it goes", nil, "", 2},
			{"it is back", []string{"10.0.0.7"}, "10.0.0.7", 2},
		} {
			w.set(func() { w.addrs, w.source = step.addrs, step.source })
			w.changed()
			w.set(func() {
				if w.lost != step.lost {
					t.Errorf("%s: connections are given up %d times, want %d", step.what, w.lost, step.lost)
				}
			})
		}
	})
}

func TestAControlPlaneOnThisHostHasNoRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(NetworkOptions{
			Scan: func(to ...netip.AddrPort) probe.Network {
				return probe.Network{ControlPlane: slices.Repeat([]probe.TargetRoute{{}}, len(to))}
			},
			Watch: func(ctx context.Context, _ func() []netip.Addr, changes chan<- struct{}) error {
				changes <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		reported := 0
		n.Again()
		if err := n.Run(ctx, func() { reported++ }); !errors.Is(err, context.DeadlineExceeded) || reported != 0 || len(n.Current().ControlPlane) != 0 {
			t.Errorf("Run() = %v, reported %d changes, network %+v, want nothing to happen", err, reported, n.Current())
		}
	})
}

func TestAFileThatHangsDoesNotBlockTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{server: "api.example.com:6443", addrs: []string{"192.0.2.10"}}
		answers := make(chan struct{})
		started := time.Now()
		n := NewNetwork(NetworkOptions{
			ControlPlane: func() (string, error) { <-answers; return w.server, nil },
			Endpoint:     func() string { return "/etc/kubeconfig" },
			Scan:         func(...netip.AddrPort) probe.Network { return probe.Network{} },
		})
		if took := time.Since(started); took > 5*time.Second || !n.Current().Resolving {
			t.Errorf("NewNetwork() took %v, and is Resolving: %v, want it to continue without knowing", took, n.Current().Resolving)
		}
		close(answers)
	})
}
