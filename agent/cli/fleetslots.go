package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane/server/answer"
)

func (a *app) fleetSlotsCommand() *cobra.Command {
	cmd := a.serverReader("slots", "Show reboot slots: who holds one, who waits, and why", func(ctx context.Context, c *api.ServerClient, out *output) error {
		s, err := c.Slots(ctx)
		if err != nil {
			return err
		}
		return out.print(s, func(t *table) { printSlots(t, out, s) })
	})
	cmd.Long = `Show the reboot slots of each group, the hosts that hold one, and those that
wait. With -o wide, also show how the last slots became free.`
	cmd.AddCommand(a.fleetSlotsReleaseCommand())
	return cmd
}

func (a *app) fleetSlotsReleaseCommand() *cobra.Command {
	var req answer.ReleaseRequest
	var cmd *cobra.Command
	cmd = a.serverReader("release ID", "Free the slot of a host that does not give it back; needs root", func(ctx context.Context, c *api.ServerClient, out *output) error {
		req.ID = cmd.Flags().Arg(0)
		done, err := c.ReleaseSlot(ctx, req)
		if err != nil {
			return err
		}
		return out.print(done, func(t *table) {
			t.line("%s has no slot of group %s any more, and does not wait for one; recorded: %s", done.ID, done.Group, done.Reason)
			if done.Message != "" {
				for _, line := range wrap(done.Message, screenWidth) {
					t.line("%s", line)
				}
			}
		})
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) != 1 || args[0] == "":
			return usageError(fmt.Sprintf("%s takes one ID, got %q\nhint: `hostler fleet slots` lists them", cmd.CommandPath(), args))
		case strings.TrimSpace(req.Reason) == "":
			return usageError("the reason is missing\nhint: say why with --reason: it is recorded")
		}
		return nil
	}
	cmd.Long = `Free the slot of a host, or end its request, and record who did it, and why.

Another host may then reboot, unless too many Nodes of the group are not Ready:
the Node of the host counts for maxUnavailable until it is Ready or deleted.
Check first that the host does not return, or that its group can do without one
more host.`
	cmd.Example = `  hostler fleet slots release rack1-node1 --reason "disk broken, host is off"`
	cmd.Flags().StringVar(&req.Group, "group", "default", "`GROUP` of the slot")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "`TEXT` that says why, for the record")
	return cmd
}

func printSlots(t *table, out *output, s answer.Slots) {
	if s.State == answer.Disabled {
		t.line("reboots is %s on this server; see `hostler fleet status`", s.State)
		return
	}
	t.row("GROUP", "SLOTS", "HELD", "WAITING", "NODES", "NOT READY", "NOTE")
	for _, g := range s.Groups {
		note := g.Error
		if g.Error != "" {
			note = out.red("cannot be read") + ": " + t.below(g.Error)
		} else if out.wide() {
			note = fmt.Sprintf("one zone at a time: %t; at most %s not ready", g.OneZoneAtATime, g.MaxUnavailable)
		}
		nodes, notReady := strconv.Itoa(g.Nodes), strconv.Itoa(g.NotReady)+named(g.NotReadyNodes, g.NotReady)
		if s.Unread != "" {
			nodes, notReady = "unknown", "unknown"
		}
		t.row(g.Name, strconv.Itoa(g.Slots), strconv.Itoa(len(g.Holders)), strconv.Itoa(len(g.Waiting)+g.Unrecorded), nodes, notReady, note)
	}
	if s.Unread != "" {
		t.line("")
		t.line("%s this server does not know the Nodes yet: %s", out.yellow("warning:"), s.Unread)
	}
	printHolders(t, out, s.Groups)
	printWaiting(t, out, s.Groups)
	if out.wide() {
		printReleases(t, out, s.Groups)
	}
	if s.FleetLock == "" && out.wide() {
		t.line("")
		t.line("this server does not listen for FleetLock clients: `reboots.listen` is empty")
	}
	t.printCommands()
}

func printHolders(t *table, out *output, groups []answer.SlotGroup) {
	row, late := t.section("HOLDER", "GROUP", "FOR", "STEP", "BY", "ZONE", "NOTE"), ""
	for _, g := range groups {
		for _, h := range slices.Concat(g.Holders, g.WithoutSlot) {
			row(h.ID, g.Name, age(out.now().Sub(h.Since)), h.Step, h.By, h.Zone, joined(h.Waits, joined(h.Note, h.Reason)))
			if h.Late && late == "" {
				late = fmt.Sprintf("%s holds its slot for %s.\nCheck that host. To free the slot, run `hostler fleet slots release %s --group %s --reason TEXT`", h.ID, age(out.now().Sub(h.Since)), h.ID, g.Name)
			}
		}
	}
	if late != "" {
		t.line("")
		t.line("%s %s", out.yellow("warning:"), late)
	}
}

func printWaiting(t *table, out *output, groups []answer.SlotGroup) {
	row := t.section("WAITING", "GROUP", "FOR", "BY", "WAITS BECAUSE")
	for _, g := range groups {
		for _, r := range g.Waiting {
			row(r.ID, g.Name, age(out.now().Sub(r.Since)), r.By, joined(r.Wait, r.Reason))
		}
		if g.Unrecorded > 0 {
			row(fmt.Sprintf("%d more", g.Unrecorded), g.Name, "", "agent", "the others are recorded first")
		}
	}
}

func printReleases(t *table, out *output, groups []answer.SlotGroup) {
	row := t.section("RELEASED", "GROUP", "AGO", "HELD FOR", "HOW", "BY", "REASON")
	for _, g := range groups {
		for _, r := range g.Releases {
			held := ""
			if r.Held != nil {
				held = age(r.At.Sub(*r.Held))
			}
			row(r.ID, g.Name, age(out.now().Sub(r.At)), held, r.How, r.By, r.Reason)
		}
	}
}
