package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	agentconfig "hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/controlplane/server"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/internal/configfile"
	"hostler.io/hostler/internal/few"
)

func (a *app) serverCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server, which acts on the Nodes of a fleet",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.serverConfig(file)
			if err != nil {
				return err
			}
			log, level, end := open.Log(a.raw.Stderr, agentconfig.Log{Level: c.Log.Level, Format: c.Log.Format}, a.Getenv("JOURNAL_STREAM"))
			defer end()
			store, err := server.OpenStore(c.Store, a.Version, a.Getenv, log)
			if err != nil {
				return err
			}
			events, err := server.OpenEvents(c.Store, store, a.Version)
			if err != nil {
				return err
			}
			s, err := server.New(server.Options{
				Config: c, Reload: func() (config.Config, error) { return a.readServerConfig(file) }, Store: store, Events: events,
				Read: func() (config.Config, error) {
					c, _, err := loadServerConfig(file, server.Spec(a.Getenv))
					return c, err
				},
				Version: a.Version, Getenv: a.Getenv, Unsetenv: os.Unsetenv, Log: log, Level: level,
			})
			if err != nil {
				return err
			}
			return s.Run(a.Signals)
		},
	}
	serverConfigFlag(cmd, &file)
	return cmd
}

func serverConfigFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "configuration `FILE`; files in server.d next to it are read too (default: "+config.DefaultFile+")")
}

// readServerConfig reads the configuration that the server would read.
func (a *app) readServerConfig(file string) (config.Config, error) {
	c, _, err := a.readAnyServerConfig(file, server.Spec(a.Getenv))
	return c, err
}

// readAnyServerConfig also returns the files that were read.
func (a *app) readAnyServerConfig(file string, spec configfile.Spec[config.Config]) (config.Config, []string, error) {
	c, source, err := loadServerConfig(file, spec)
	a.warnNotRead(source.Ignored)
	return c, source.Files, err
}

func loadServerConfig(file string, spec configfile.Spec[config.Config]) (config.Config, configfile.Source, error) {
	file = cmp.Or(file, config.DefaultFile)
	return spec.Load(file, filepath.Join(filepath.Dir(file), filepath.Base(config.DefaultDropIns)))
}

// serverConfig reads the server's configuration and prints its faults, one on each line.
func (a *app) serverConfig(file string) (config.Config, error) {
	c, err := a.readServerConfig(file)
	return c, a.withoutFaults(err)
}

// checkServerConfig validates the server's configuration and prints its files. For another host or
// pod, it ignores the environment of this process.
func (a *app) checkServerConfig(file string, another bool) error {
	spec := server.Spec(a.Getenv)
	if another {
		spec = config.Spec()
	}
	_, files, err := a.readAnyServerConfig(file, spec)
	if err != nil {
		return a.withoutFaults(err)
	}
	for _, f := range files {
		fmt.Fprintln(a.Stdout, f+": ok")
	}
	return nil
}

func (a *app) fleetCommand() *cobra.Command {
	status := a.serverReader("status", "Show the server: leaders, zones, and what is pending", func(ctx context.Context, c *api.ServerClient, out *output) error {
		s, err := c.FleetStatus(ctx)
		if err != nil {
			return err
		}
		return out.print(s, func(t *table) { printFleetStatus(t, out, s) })
	})
	plan := a.serverReader("plan", "Show what the controllers do now and later, and why", func(ctx context.Context, c *api.ServerClient, out *output) error {
		p, err := c.FleetPlan(ctx)
		if err != nil {
			return err
		}
		return out.print(p, func(t *table) { printFleetPlan(t, out, p) })
	})
	return group("fleet", "Show what the server does with the fleet, and its objects", status, plan, a.fleetGetCommand(), a.fleetDeleteCommand(), a.fleetGCCommand(), a.fleetSlotsCommand())
}

// serverReader returns a command that queries the server and prints the answer.
func (a *app) serverReader(use, short string, run func(ctx context.Context, c *api.ServerClient, out *output) error) *cobra.Command {
	var format, socket string
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	cmd.Flags().StringVar(&socket, "socket", config.DefaultSocket, "`PATH` of the server's API socket")
	formatFlag(cmd, &format)
	cmd.RunE = func(*cobra.Command, []string) error {
		out, err := a.output(format)
		if err != nil {
			return err
		}
		return a.interruptible(func(ctx context.Context) error { return run(ctx, api.NewServerClient(socket), out) })
	}
	return cmd
}

// zoneName returns the name of a zone for display.
func zoneName(name string) string { return cmp.Or(name, "(no zone)") }

// nodesLine counts the Nodes, or says why they are not known yet.
func nodesLine(s answer.Status) string {
	for _, c := range s.Controllers {
		if c.Name == "node-lifecycle" && c.Waits != "" && s.Nodes == 0 {
			return "unknown: " + c.Waits
		}
	}
	return fmt.Sprintf("%d, %d not ready%s", s.Nodes, s.NotReady, named(s.NotReadyNodes, s.NotReady))
}

func printFleetStatus(t *table, out *output, s answer.Status) {
	t.row("SERVER", s.Candidate+", version "+s.Version)
	store := s.Store.Type + " at " + s.Store.Endpoint
	switch {
	case s.Store.Since != nil:
		store += ", answers since " + out.ago(*s.Store.Since)
	case s.Store.Refused:
		store += ", " + out.red("refuses this server") + ": " + t.below(s.Store.Error)
	default:
		store += ", " + out.red("does not answer") + ": " + t.below(s.Store.Error)
		if s.Nodes > 0 {
			store += "; Nodes, Leases and zones are as last read"
		}
	}
	t.row("STORE", store)
	if trouble, fix := doctor.ServerConfiguration(s.Configuration); trouble != "" {
		t.row("FILES", t.below(trouble)+": "+fix)
	}
	t.row("NODES", nodesLine(s))
	if h := s.Heartbeats; h != nil {
		t.row("HEARTBEATS", heartbeatsLine(*h))
	}
	if len(s.Slots) > 0 {
		t.row("SLOTS", slotsLine(s.Slots))
	}
	t.line("")
	t.row("CONTROLLER", "STATE", "LEADER", "DUE", "PENDING", "FAILING", "NOTE")
	for _, c := range s.Controllers {
		leader := c.Leader
		if c.State == answer.Leading {
			leader = "this server"
		}
		if c.Since != nil && out.wide() {
			leader += " since " + c.Since.Format(time.RFC3339)
		}
		t.row(c.Name, c.State, leader, known(c.Due, c.Waits), known(c.Pending, c.Waits), fmt.Sprint(c.Failing), t.below(note(s, c)))
	}
	if len(s.Zones) > 0 {
		t.line("")
		t.row("ZONE", "STATE", "NODES", "NOT READY", "EVICTIONS", "NOTE")
		for _, z := range s.Zones {
			rate := fmt.Sprintf("%v/s", z.Rate)
			if z.Paused != "" {
				rate = "paused"
			}
			t.row(zoneName(z.Name), z.State, fmt.Sprint(z.Nodes), fmt.Sprint(z.NotReady), rate, t.below(z.Paused))
		}
	}
	printFew(t, t.section("OBJECT", "PROBLEM"), s.Problems)
	printServerLoops(t, out, s)
	t.printCommands()
}

// mostProblems is the maximum number of listed problems with the same hint.
const mostProblems = 20

// printFew lists objects with problems. Of further objects it prints only the number and a few
// names.
func printFew(t *table, row func(cells ...string), problems []answer.Problem) {
	listed, more := map[string]int{}, map[string][]string{}
	for _, p := range problems {
		if listed[p.Hint]++; listed[p.Hint] <= mostProblems {
			row(p.Object, strings.TrimSuffix(t.below(p.Message)+": "+p.Hint, ": "))
		} else {
			more[p.Hint] = append(more[p.Hint], p.Object)
		}
	}
	for _, hint := range slices.Sorted(maps.Keys(more)) {
		row(fmt.Sprint(len(more[hint]), " more"), strings.TrimSuffix(few.Names(more[hint], 3)+": "+hint, ": "))
	}
}

// note returns what a controller waits for. If the store does not answer, that is the cause of the
// rest.
func note(s answer.Status, c answer.Controller) string {
	if s.Store.Since == nil && c.Waits != "" {
		return c.Waits
	}
	return joined(c.Waits, c.Message)
}

// known returns a number of changes, or "?" if none is known while the controller waits for facts.
func known(n int, waits string) string {
	if n == 0 && waits != "" {
		return "?"
	}
	return fmt.Sprint(n)
}

// heartbeatsLine returns how long Leases are valid, and why.
func heartbeatsLine(h answer.Heartbeats) string {
	lease := time.Duration(h.LeaseSeconds * float64(time.Second))
	switch {
	case lease == 0:
		return fmt.Sprintf("%s: %s", count(h.Hosts, "host"), h.Reason)
	case h.Setting == "":
		return fmt.Sprintf("%s, each with Leases as in its own configuration; %.1f renewals a second if they last %v: %s", count(h.Hosts, "host"), h.PerSecond, lease, h.Reason)
	}
	return fmt.Sprintf("%s, Leases of %v, %.1f renewals a second: %s", count(h.Hosts, "host"), lease, h.PerSecond, h.Reason)
}

// slotsLine returns how many reboot slots are held, by whom, and how many hosts wait.
func slotsLine(groups []answer.SlotGroup) string {
	var parts []string
	for _, g := range groups {
		var holders []string
		for _, h := range g.Holders[:min(len(g.Holders), 3)] {
			holders = append(holders, h.ID)
		}
		part := fmt.Sprintf("%s %d of %d held%s", g.Name, len(g.Holders), g.Slots, named(holders, len(g.Holders)))
		if len(g.Waiting) > 0 {
			part += fmt.Sprintf("; %d waiting", len(g.Waiting)+g.Unrecorded)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// named lists names, and says if there are more.
func named(names []string, all int) string {
	if len(names) == 0 {
		return ""
	}
	text := ": " + strings.Join(names, ", ")
	if all > len(names) {
		text += " and more"
	}
	return text
}

// printServerLoops names the loops that are not healthy, unless the store is the cause. Wide output
// names all.
func printServerLoops(t *table, out *output, s answer.Status) {
	head := false
	for _, l := range s.Loops {
		if !out.wide() && (l.Healthy || s.Store.Since == nil) {
			continue
		}
		if !head {
			t.line("")
			t.row("LOOP", "HEALTHY", "LAST ERROR")
			head = true
		}
		t.row(l.Name, fmt.Sprint(l.Healthy), t.below(l.LastError))
	}
}

// idle returns what a controller watches that has no actions, and knows that none is due.
func idle(out *output, c answer.ControllerPlan) string {
	line := "nothing is due. It watches " + c.Watches
	if c.Next != nil && c.Next.After(out.now()) {
		line += fmt.Sprintf(". It decides again in %s, or when something changes", c.Next.Sub(out.now()).Round(time.Second))
	}
	return line
}

// planHead names a controller. If another server executes its plan, planHead names that one.
func planHead(c answer.ControllerPlan) string {
	executes := "only the leader executes this"
	switch c.State {
	case answer.Leading:
		return c.Name
	case answer.Yielding:
		executes = "kube-controller-manager executes this"
	case answer.Starting:
		executes = "no server executes this yet"
	}
	return c.Name + " (" + c.State + "; " + executes + ")"
}

func printFleetPlan(t *table, out *output, p answer.Plan) {
	for _, c := range p.Controllers {
		switch none := len(c.Actions) == 0; {
		case c.State == answer.Disabled || c.State == answer.NotApplicable:
			t.line("%s is %s on this server", c.Name, c.State)
			continue
		case c.Waits != "":
			t.line("%s does not know everything that is due: %s", planHead(c), t.once(c.Waits))
		case none && c.State == answer.Yielding:
			t.line("%s", planHead(c))
		case none:
			t.line("%s: %s", planHead(c), idle(out, c))
		case c.State != answer.Leading:
			t.line("%s:", planHead(c))
		}
		if len(c.Actions) == 0 {
			printSettled(t, c.Settled)
			continue
		}
		t.row("DUE", "OBJECT", "ZONE", "ACTION", "REASON")
		for _, action := range c.Actions {
			due := "paused"
			if action.Due != nil {
				due = "now"
				if wait := action.Due.Sub(out.now()); wait > 0 {
					due = "in " + wait.Round(time.Second).String()
				}
			}
			zone := ""
			if strings.HasPrefix(action.Object, "nodes/") {
				zone = zoneName(action.Zone)
			}
			t.row(due, action.Object, zone, action.Action, action.Reason)
		}
		printSettled(t, c.Settled)
	}
}

// printSettled prints the next change for Nodes that are not ready and have no pending action.
func printSettled(t *table, nodes []answer.Settled) {
	for _, n := range nodes {
		line := n.Node + " is " + readyWord(n.Ready) + ": "
		var keys []string
		noExecute := ""
		for _, taint := range n.Taints {
			key, effect, _ := strings.Cut(taint, ":")
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
			if effect == string(corev1.TaintEffectNoExecute) {
				noExecute = ", NoExecute"
			}
		}
		if noExecute != "" && n.NoExecuteSince != nil {
			noExecute += " since " + n.NoExecuteSince.Format(time.RFC3339)
		}
		if len(keys) == 0 {
			line += "not tainted"
		} else {
			line += "tainted " + strings.Join(keys, ", ") + noExecute
		}
		t.line("%s; %s", line, n.Next)
	}
}

// readyWord returns the status of a Node that is not ready, as kubectl prints it.
func readyWord(ready string) string {
	if ready == string(corev1.ConditionFalse) {
		return "NotReady"
	}
	return "Unknown"
}
