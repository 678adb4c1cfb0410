package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane"
)

const program = "/usr/local/bin/fleet-plugin"

// plugged is a host whose Node a plugin keeps that hostler runs, and all is well.
func plugged() doctor.Facts {
	f := healthy()
	f.Plugin = &doctor.Plugin{
		Standing: doctor.Standing{Node: "n", Found: true, Mine: true},
		Socket:   "/run/hostler/hostler.sock.plugin/plugin.sock", Command: program,
		Name: "fleet", Version: "1.2.3", Endpoint: "https://fleet.example", Lists: true, Watches: true, Expires: true,
	}
	return f
}

// elsewhere has somebody else run the plugin.
func elsewhere(f *doctor.Facts) { f.Plugin.Command, f.Plugin.Socket = "", "/run/fleet/plugin.sock" }

// dumb is a plugin that does not say who it is.
func dumb(f *doctor.Facts) {
	f.Plugin.Name, f.Plugin.Version, f.Plugin.Endpoint = "", "", ""
	f.Plugin.Lists, f.Plugin.Watches, f.Plugin.Expires, f.Plugin.Found = false, false, false, false
}

func TestAHostWithAPluginIsFine(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*doctor.Facts)
		want   []string // in what its checks say
	}{
		"hostler runs it": {func(*doctor.Facts) {}, []string{"plugin fleet 1.2.3, speaking protocol 1 for https://fleet.example, answers, and knows node n", program + " runs, and has not ended", "lists objects, tells of changes, and ends", "its lease is renewed"}},
		"somebody else":   {elsewhere, []string{"and knows node n"}},
		"it can do no more than it has to": {func(f *doctor.Facts) {
			f.Plugin.Lists, f.Plugin.Watches, f.Plugin.Expires = false, false, false
		}, []string{"shows no other host", "looked for every 10 seconds", "the lease of a host that died stays"}},
		"it ended once, long ago": {func(f *doctor.Facts) {
			f.Plugin.Ends, f.Plugin.LastEnd, f.Plugin.Ended = 1, errors.New("exit status 3"), time.Now().Add(-2*time.Hour)
		}, []string{"has ended once since the agent was started", "exit status 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := plugged()
			c.change(&f)
			var said []string
			for _, check := range doctor.Examine(f).Checks {
				if strings.HasPrefix(check.Name, "plugin") {
					said = append(said, check.Message)
					if check.Status != doctor.OK {
						t.Errorf("Examine() = %v, want it ok", check)
					}
				}
			}
			for _, want := range c.want {
				if !strings.Contains(strings.Join(said, "\n"), want) {
					t.Errorf("Examine() says %q, want %q in it", said, want)
				}
			}
		})
	}
}

func TestEachFaultOfAPluginIsFoundWithItsMend(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*doctor.Facts)
		want  []string // "status name" and parts of message or hint, with "|" between
	}{
		{"others may write the socket", func(f *doctor.Facts) {
			elsewhere(f)
			dumb(f)
			f.Plugin.Unreached = doctor.Mend{Message: "may be written by others (Srwxrwx---)", Command: "chmod go-w /run/fleet/plugin.sock"}
			f.Plugin.Overdue = "lease not renewed for 50s"
		}, []string{"fail plugin|/run/fleet/plugin.sock: may be written by others|chmod go-w", "fail plugin-node|for dead: lease not renewed for 50s|checks of the plugin"}},
		{"there is no socket", func(f *doctor.Facts) {
			elsewhere(f)
			dumb(f)
			f.Plugin.Unreached = doctor.Mend{Message: "there is no socket"}
		}, []string{"fail plugin|there is no socket|start the plugin's own service"}},
		{"it begins to serve", func(f *doctor.Facts) {
			dumb(f)
			f.Plugin.Unreached = doctor.Mend{Message: "there is no socket"}
		}, []string{"fail plugin|there is no socket|wait half a minute"}},
		{"it does not say who it is", func(f *doctor.Facts) {
			dumb(f)
			f.Plugin.Silent = errors.New("ask who it is: no answer from plugin at /run/x: it may hang: see its log")
		}, []string{"fail plugin|no answer from plugin|answers Info at once"}},
		{"it speaks another protocol", func(f *doctor.Facts) {
			dumb(f)
			f.Plugin.Silent = errors.New(`plugin "fleet" speaks protocol [2], and hostler speaks 1: install versions of both that have one in common`)
		}, []string{"fail plugin|speaks protocol [2]"}},
		{"the program is not there", func(f *doctor.Facts) {
			dumb(f)
			f.Plugin.Unfit = doctor.Mend{Message: "is not there", Command: "install it"}
			f.Plugin.Unreached = doctor.Mend{Message: "there is no socket"}
		}, []string{"fail plugin-program|" + program + " is not there|install it; hostler starts it by itself"}},
		{"the program ends whenever it is started", func(f *doctor.Facts) {
			dumb(f)
			f.Plugin.Ends, f.Plugin.LastEnd, f.Plugin.Ended = 7, errors.New("exit status 3: it said: no such fleet"), time.Now()
			f.Plugin.Unreached = doctor.Mend{Message: "there is no socket"}
		}, []string{"fail plugin-program|has ended 7 times since|it said: no such fleet|mend what it says|journalctl -u hostler"}},
		{"the program has ended lately", func(f *doctor.Facts) {
			f.Plugin.Ends, f.Plugin.LastEnd, f.Plugin.Ended = 2, errors.New("signal: killed"), time.Now()
		}, []string{"warn plugin-program|has ended 2 times|signal: killed|journalctl -u hostler"}},
		{"what is behind it is away", func(f *doctor.Facts) {
			f.Plugin.Found, f.Plugin.Reading = false, fmt.Errorf("get nodes/n: connection refused: %w", controlplane.ErrUnavailable)
		}, []string{"fail plugin|answers, and not for node n|connection refused|what is behind the plugin runs"}},
		{"another machine has the name", func(f *doctor.Facts) {
			f.Plugin.Writing = &controlplane.IdentityError{Name: "n"}
		}, []string{"fail plugin|the agent's last write failed|node.takeover"}},
		{"it may not write", func(f *doctor.Facts) {
			f.Plugin.Writing = by(controlplane.ErrForbidden)
		}, []string{"fail plugin|the agent's last write failed|let this host write"}},
		{"it does not list, and says that it does", func(f *doctor.Facts) {
			f.Plugin.Listing = errors.New("it does not implement this call")
		}, []string{"warn plugin-abilities|says that it lists objects, and does not: it does not implement|ABILITY_LIST"}},
		{"it tells of no changes, and says that it does", func(f *doctor.Facts) {
			f.Plugin.Watching = context.DeadlineExceeded
		}, []string{"warn plugin-abilities|says that it tells of changes, and does not|ABILITY_WATCH"}},
		{"the lease is gone", func(f *doctor.Facts) {
			f.Plugin.Overdue = "there is a node n and no lease of it"
		}, []string{"fail plugin-node|takes this host for dead: there is a node n and no lease"}},
		{"the node is cordoned", func(f *doctor.Facts) {
			f.Plugin.Drift = []doctor.Mend{{Message: "it is cordoned", Command: "hostler uncordon"}}
		}, []string{"warn plugin-node|it is cordoned|hostler uncordon"}},
		{"the node is waited for", func(f *doctor.Facts) {
			f.Plugin.Found, f.Plugin.Stands = false, "node.register is false"
		}, []string{"warn plugin|there is no node n: node.register is false"}},
		{"there is no node yet", func(f *doctor.Facts) { f.Plugin.Found = false }, []string{"warn plugin|there is no node n yet|hostler status"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := plugged()
			c.spoil(&f)
			finds(t, doctor.Examine(f), c.want)
		})
	}
}

func TestAPluginIsLookedAtWithoutAnAgent(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*doctor.Facts)
		want  []string // as above, beside those of an agent that is away
	}{
		{"it is fine", func(*doctor.Facts) {}, nil},
		{"its program does not serve", func(f *doctor.Facts) {
			dumb(f)
			f.Plugin.Ends, f.Plugin.LastEnd, f.Plugin.Ended = 1, errors.New("exit status 3: it said: no such fleet"), time.Now()
		}, []string{"fail plugin-program|was run for this look, and does not serve: exit status 3: it said: no such fleet"}},
		{"its program ends under the look", func(f *doctor.Facts) {
			f.Plugin.Ends, f.Plugin.LastEnd, f.Plugin.Ended = 1, errors.New("signal: killed"), time.Now()
		}, []string{"fail plugin-program|was run for this look, and does not serve: signal: killed"}},
		{"its lease has ended", func(f *doctor.Facts) {
			f.Plugin.Overdue = "there is a node n and no lease of it"
		}, []string{"fail plugin-node|for dead|systemctl restart hostler"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := plugged()
			away(&f)
			c.spoil(&f)
			r := doctor.Examine(f)
			finds(t, r, append(c.want, "*"))
			for _, check := range r.Checks {
				if check.Name == "plugin-program" && check.Status == doctor.OK && !strings.Contains(check.Message, "it was, for this look") {
					t.Errorf("check %v, want it to say who ran the program", check)
				}
				if strings.HasPrefix(check.Name, "plugin") && check.Status != doctor.OK && len(c.want) == 0 {
					t.Errorf("check %v, want it ok", check)
				}
			}
		})
	}
}
