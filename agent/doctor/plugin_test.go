package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane"
)

// withPlugin is a healthy host whose Node a plugin stores.
func withPlugin() doctor.Facts {
	f := healthy()
	f.Plugin = &doctor.Plugin{
		StoreState: doctor.StoreState{Node: "n", Found: true, Managed: true},
		Socket:     "/run/fleet/plugin.sock",
		Name:       "fleet", Version: "1.2.3", Endpoint: "https://fleet.example", CanList: true, CanWatch: true, CanExpire: true,
	}
	return f
}

// withoutInfo makes the plugin not answer Info.
func withoutInfo(f *doctor.Facts) {
	f.Plugin.Name, f.Plugin.Version, f.Plugin.Endpoint = "", "", ""
	f.Plugin.CanList, f.Plugin.CanWatch, f.Plugin.CanExpire, f.Plugin.Found = false, false, false, false
}

func TestAHostWithAPluginIsFine(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*doctor.Facts)
		want   []string // parts of the messages of its checks
	}{
		"it does all": {func(*doctor.Facts) {}, []string{"plugin fleet 1.2.3, speaking protocol 1 for https://fleet.example, answers, and node n exists", "lists objects, watches changes, and expires", "the lease is renewed"}},
		"it can do no more than it has to": {func(f *doctor.Facts) {
			f.Plugin.CanList, f.Plugin.CanWatch, f.Plugin.CanExpire = false, false, false
		}, []string{"shows no other host", "reads changes every 10 seconds", "leases of dead hosts remain"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := withPlugin()
			c.change(&f)
			var text []string
			for _, check := range doctor.Examine(f).Checks {
				if strings.HasPrefix(check.Name, "plugin") {
					text = append(text, check.Message)
					if check.Status != doctor.OK {
						t.Errorf("Examine() = %v, want it ok", check)
					}
				}
			}
			for _, want := range c.want {
				if !strings.Contains(strings.Join(text, "\n"), want) {
					t.Errorf("Examine() says %q, want %q in it", text, want)
				}
			}
		})
	}
}

func TestEachFaultOfAPluginIsFoundWithItsFix(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*doctor.Facts)
		want  []string // "status name" and parts of message or hint, with "|" between
	}{
		{"others may write the socket", func(f *doctor.Facts) {
			withoutInfo(f)
			f.Plugin.Unreached = doctor.Fix{Message: "is writable by users other than root (Srwxrwx---)", Command: "chmod go-w /run/fleet/plugin.sock"}
			f.Plugin.LeaseExpired = "lease not renewed for 50s"
		}, []string{"fail plugin|/run/fleet/plugin.sock: is writable by users other than root|chmod go-w", "fail plugin-node|the lease has expired: lease not renewed for 50s|checks of the plugin"}},
		{"there is no socket", func(f *doctor.Facts) {
			withoutInfo(f)
			f.Plugin.Unreached = doctor.Fix{Message: "there is no socket"}
		}, []string{"fail plugin|there is no socket|start the service of the plugin"}},
		{"it does not say who it is", func(f *doctor.Facts) {
			withoutInfo(f)
			f.Plugin.NoAnswer = errors.New("ask who it is: no answer from plugin at /run/x: it may hang: see its log")
		}, []string{"fail plugin|no answer from plugin|answer Info at once"}},
		{"it speaks another protocol", func(f *doctor.Facts) {
			withoutInfo(f)
			f.Plugin.NoAnswer = errors.New(`plugin "fleet" speaks protocol [2], and hostler speaks 1: install versions of both with a common protocol`)
		}, []string{"fail plugin|speaks protocol [2]"}},
		{"what is behind it is away", func(f *doctor.Facts) {
			f.Plugin.Found, f.Plugin.ReadErr = false, fmt.Errorf("get nodes/n: connection refused: %w", controlplane.ErrUnavailable)
		}, []string{"fail plugin|answers, but cannot read node n|connection refused|the store behind the plugin"}},
		{"another machine has the name", func(f *doctor.Facts) {
			f.Plugin.WriteErr = &controlplane.IdentityError{Name: "n"}
		}, []string{"fail plugin|the agent's last write failed|node.takeover"}},
		{"it may not write", func(f *doctor.Facts) {
			f.Plugin.WriteErr = clientError(controlplane.ErrForbidden)
		}, []string{"fail plugin|the agent's last write failed|allow this host to write"}},
		{"it does not list, and says that it does", func(f *doctor.Facts) {
			f.Plugin.ListErr = errors.New("it does not implement this call")
		}, []string{"warn plugin-abilities|says that it lists objects, but that fails: it does not implement|ABILITY_LIST"}},
		{"it reports no changes, and says that it does", func(f *doctor.Facts) {
			f.Plugin.WatchErr = context.DeadlineExceeded
		}, []string{"warn plugin-abilities|says that it watches changes, but that fails|ABILITY_WATCH"}},
		{"the lease is gone", func(f *doctor.Facts) {
			f.Plugin.LeaseExpired = "there is a node n and no lease of it"
		}, []string{"fail plugin-node|the lease has expired: there is a node n and no lease"}},
		{"the node is cordoned", func(f *doctor.Facts) {
			f.Plugin.Drift = []doctor.Fix{{Message: "it is cordoned", Command: "hostler uncordon"}}
		}, []string{"warn plugin-node|it is cordoned|hostler uncordon"}},
		{"the Node does not exist yet", func(f *doctor.Facts) {
			f.Plugin.Found, f.Plugin.NotWritten = false, "node.register is false"
		}, []string{"warn plugin|node n does not exist: node.register is false"}},
		{"there is no node yet", func(f *doctor.Facts) { f.Plugin.Found = false }, []string{"warn plugin|node n does not exist yet|hostler status"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := withPlugin()
			c.spoil(&f)
			finds(t, doctor.Examine(f), c.want)
		})
	}
}

func TestAPluginIsCheckedWithoutAnAgent(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*doctor.Facts)
		want  []string // as above, besides the findings without an agent
	}{
		{"it is fine", func(*doctor.Facts) {}, nil},
		{"its lease has ended", func(f *doctor.Facts) {
			f.Plugin.LeaseExpired = "there is a node n and no lease of it"
		}, []string{"fail plugin-node|the lease has expired|systemctl restart hostler"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := withPlugin()
			down(&f)
			c.spoil(&f)
			r := doctor.Examine(f)
			finds(t, r, append(c.want, "*"))
			for _, check := range r.Checks {
				if strings.HasPrefix(check.Name, "plugin") && check.Status != doctor.OK && len(c.want) == 0 {
					t.Errorf("check %v, want it ok", check)
				}
			}
		})
	}
}
