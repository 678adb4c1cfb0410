package clones_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/clones"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// host returns a host that is alive since noon and reported five minutes later.
func host(name, machine, boot string, edits ...func(*clones.Host)) clones.Host {
	h := clones.Host{Name: name, UID: "u", MachineID: machine, BootID: boot, Alive: true, Since: noon, Reported: noon.Add(5 * time.Minute)}
	for _, edit := range edits {
		edit(&h)
	}
	return h
}

func dead(h *clones.Host) { h.Alive = false }

func stored(value string) func(*clones.Host) { return func(h *clones.Host) { h.Stored = value } }

// at sets how long after noon the host appears and reports; it has not reported if reported is 0.
func at(since, reported time.Duration) func(*clones.Host) {
	return func(h *clones.Host) {
		h.Since, h.Reported = noon.Add(since), noon.Add(reported)
		if reported == 0 {
			h.Reported = time.Time{}
		}
	}
}

func TestDecisions(t *testing.T) {
	for name, c := range map[string]struct {
		hosts []clones.Host
		want  string // expected changes
		found string // expected groups
	}{
		"hosts that differ":                      {[]clones.Host{host("a", "m", "1"), host("b", "n", "2")}, "", ""},
		"two of one machine ID":                  {[]clones.Host{host("a", "m", "1"), host("b", "m", "2"), host("c", "n", "3")}, "a=b b=a", "a+b"},
		"that are named":                         {[]clones.Host{host("a", "m", "1", stored("b")), host("b", "m", "2", stored("a"))}, "", "a+b"},
		"three":                                  {[]clones.Host{host("c", "m", "3"), host("a", "m", "1", stored("b")), host("b", "m", "2")}, "a=b,c b=a,c c=a,b", "a+b+c"},
		"one boot under two names":               {[]clones.Host{host("a", "m", "1"), host("kubelet", "m", "1")}, "", ""},
		"one boot under two names, and a clone":  {[]clones.Host{host("a", "m", "1"), host("kubelet", "m", "1"), host("z", "m", "2")}, "a=z kubelet=z z=a,kubelet", "a+kubelet+z"},
		"no boot IDs":                            {[]clones.Host{host("a", "m", ""), host("b", "m", "")}, "a=b b=a", "a+b"},
		"no machine IDs":                         {[]clones.Host{host("a", "", "1"), host("b", "", "2")}, "", ""},
		"a dead one":                             {[]clones.Host{host("a", "m", "1"), host("b", "m", "2", dead)}, "", ""},
		"one that has died":                      {[]clones.Host{host("a", "m", "1", stored("b")), host("b", "m", "2", dead, stored("a"))}, "a= b=", ""},
		"one that was fixed":                     {[]clones.Host{host("a", "m", "1", stored("b")), host("b", "n", "2", stored("a"))}, "a= b=", ""},
		"one that was deleted":                   {[]clones.Host{host("a", "m", "1", stored("b"))}, "a=", ""},
		"one that has appeared just now":         {[]clones.Host{host("a", "m", "1"), host("b", "m", "2", at(4*time.Minute+time.Second, 5*time.Minute))}, "", ""},
		"one that has appeared a minute ago":     {[]clones.Host{host("a", "m", "1"), host("b", "m", "2", at(4*time.Minute, 5*time.Minute))}, "a=b b=a", "a+b"},
		"a renamed host, whose Lease is long":    {[]clones.Host{host("old", "m", "1"), host("new", "m", "2", at(6*time.Minute, time.Hour))}, "", ""},
		"a server that has just started":         {[]clones.Host{host("a", "m", "1", at(0, 0)), host("b", "m", "2", at(0, 0))}, "", ""},
		"the same, after another has named them": {[]clones.Host{host("a", "m", "1", at(0, 0), stored("b")), host("b", "m", "2", at(0, 0), stored("a"))}, "", "a+b"},
		"the same, with one that is gone":        {[]clones.Host{host("a", "m", "1", at(0, 0), stored("b,c")), host("b", "m", "2", at(0, 0), stored("a,c"))}, "a=b b=a", "a+b"},
		"a value of somebody else":               {[]clones.Host{host("a", "m", "1", stored("\x1b[2J, b,a")), host("b", "n", "2", stored("x"))}, "a= b=", ""},
		"a value of somebody else on a clone":    {[]clones.Host{host("a", "m", "1", stored(strings.Repeat("x,", 1<<20)+"b")), host("b", "m", "2")}, "a=b b=a", "a+b"},
	} {
		t.Run(name, func(t *testing.T) {
			d := clones.Decide(c.hosts)
			var changes, groups []string
			for _, change := range d.Now {
				changes = append(changes, change.Node+"="+change.Value)
			}
			for _, g := range d.Groups {
				groups = append(groups, strings.Join(g, "+"))
			}
			if got, found := strings.Join(changes, " "), strings.Join(groups, " "); got != c.want || found != c.found {
				t.Errorf("Decide() = %q of %q, want %q of %q", got, found, c.want, c.found)
			}
		})
	}
}

// apply applies the decision to the hosts, and returns the number of changes.
func apply(hosts []clones.Host) ([]clones.Host, int) {
	d := clones.Decide(hosts)
	for _, change := range d.Now {
		i := slices.IndexFunc(hosts, func(h clones.Host) bool { return h.Name == change.Node })
		hosts[i].Stored = change.Value
	}
	return hosts, len(d.Now)
}

func TestManyHostsOfOneMachineIDNameFewEach(t *testing.T) {
	var hosts []clones.Host
	for i := range 1000 {
		hosts = append(hosts, host(fmt.Sprintf("n%04d", i), "m", fmt.Sprint(i)))
	}
	hosts, n := apply(hosts)
	if n != 1000 {
		t.Errorf("%d changes, want one of each", n)
	}
	named := map[string]int{}
	for _, h := range hosts {
		names := controlplane.CloneNames(h.Stored)
		if len(names) != controlplane.MostClones || slices.Contains(names, h.Name) {
			t.Fatalf("%s names %q, want ten others", h.Name, names)
		}
		for _, name := range names {
			named[name]++
		}
	}
	for name, n := range named {
		if n != controlplane.MostClones {
			t.Errorf("%s is named by %d, want ten", name, n)
		}
	}
	if _, n := apply(hosts); n != 0 {
		t.Errorf("%d more changes, want none", n)
	}
	hosts[500].Alive = false
	if _, n := apply(hosts); n != 11 {
		t.Errorf("%d changes after one has died, want its own and those of the ten that named it", n)
	}
	if g := clones.Decide(hosts).Groups; len(g) != 1 || len(g[0]) != 999 || !strings.Contains(g[0].Message(), "n0009 and 989 more have the same machine ID") {
		t.Errorf("message = %q", g[0].Message())
	}
}

func BenchmarkDecide(b *testing.B) {
	for name, machine := range map[string]func(int) string{
		"different": func(i int) string { return fmt.Sprintf("%032d", i) },
		"the same":  func(int) string { return "m" },
	} {
		for what, edit := range map[string]func(*clones.Host){"known": func(*clones.Host) {}, "new": at(0, 0)} {
			b.Run(name+" "+what, func(b *testing.B) {
				var hosts []clones.Host
				for i := range 10000 {
					hosts = append(hosts, host(fmt.Sprintf("n%05d", i), machine(i), fmt.Sprint(i), edit))
				}
				for b.Loop() {
					clones.Decide(hosts)
				}
			})
		}
	}
}
