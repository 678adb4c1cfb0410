package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane/server/answer"
)

func (a *app) fleetGetCommand() *cobra.Command {
	var cmd *cobra.Command
	cmd = a.serverReader("get KIND[/NAME]", "Show objects of a fleet on etcd", func(ctx context.Context, c *api.ServerClient, out *output) error {
		object := cmd.Flags().Arg(0)
		if strings.Contains(object, "/") {
			return a.showObject(ctx, c, out, object)
		}
		list, err := c.Objects(ctx, object)
		if err != nil {
			return err
		}
		return out.print(list, func(t *table) { printObjects(t, out, list) })
	})
	cmd.Args = oneObject("KIND or KIND/NAME")
	cmd.Long = `Show the objects of a kind: nodes, leases, events, pods, or a kind of your own.
With a name, show one object in full, as YAML unless you set -o json. Events are
shown with their reasons and messages, the last one at the end.

Names are printed as they are stored: KIND/NAME, or KIND/NAMESPACE/NAME; an
Event is events/NODE/NAME, a pod is pods/NODE/NAMESPACE/NAME. On Kubernetes, use
kubectl get.`
	cmd.Example = `  hostler fleet get tickets
  hostler fleet get nodes/rack1-node1 -o yaml`
	return cmd
}

// oneObject accepts one argument.
func oneObject(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && args[0] != "" {
			return nil
		}
		return usageError(fmt.Sprintf("%s takes one %s, got %q\nhint: for example nodes/rack1-node1 or pods/rack1-node1/shop/web", cmd.CommandPath(), what, args))
	}
}

// showObject prints an object with all its fields.
func (a *app) showObject(ctx context.Context, c *api.ServerClient, out *output, name string) error {
	object, err := c.Object(ctx, name)
	if err != nil {
		return err
	}
	if out.format == "json" {
		return out.print(object, nil)
	}
	text, err := yaml.JSONToYAML(object)
	if err == nil {
		_, err = out.w.Write(text)
	}
	return err
}

func printObjects(t *table, out *output, list answer.ObjectList) {
	if len(list.Objects) == 0 {
		t.line("there are no %s", list.Kind)
		return
	}
	if list.Kind == "events" {
		printEvents(t, out, list.Objects)
		return
	}
	t.row("NAME", "OWNERS", "AGE", "DELETION")
	for _, o := range list.Objects {
		old, deletion := "", o.Problem
		if o.Created != nil {
			old = age(out.now().Sub(*o.Created))
		}
		if o.Deleted != nil {
			deletion = "requested " + out.ago(*o.Deleted)
		}
		if len(o.Finalizers) > 0 {
			deletion = joined(deletion, "finalizers "+strings.Join(o.Finalizers, ", "))
		}
		if o.Problem != "" {
			deletion = "cannot be read: " + o.Problem
		}
		t.row(o.Name, strings.Join(o.Owners, ", "), old, deletion)
	}
}

// lastSeen returns when an Event happened last; zero if it cannot be read.
func lastSeen(o answer.Object) time.Time {
	if o.Event == nil {
		return time.Time{}
	}
	return o.Event.LastSeen
}

// printEvents lists Events, the last one at the end.
func printEvents(t *table, out *output, events []answer.Object) {
	slices.SortStableFunc(events, func(a, b answer.Object) int { return lastSeen(a).Compare(lastSeen(b)) })
	t.row("NAME", "LAST SEEN", "TYPE", "REASON", "MESSAGE")
	for _, o := range events {
		if o.Event == nil {
			t.row(o.Name, "", "", "", "cannot be read: "+o.Problem)
			continue
		}
		seen := out.ago(o.Event.LastSeen)
		if o.Event.Count > 1 {
			seen += fmt.Sprintf(" (%d times)", o.Event.Count)
		}
		t.row(o.Name, seen, o.Event.Type, o.Event.Reason, o.Event.Message)
	}
}

func (a *app) fleetDeleteCommand() *cobra.Command {
	var req answer.DeletionRequest
	var dry bool
	var cmd *cobra.Command
	cmd = a.serverReader("delete KIND/NAME", "Delete an object of a fleet on etcd, and what it owns; needs root", func(ctx context.Context, c *api.ServerClient, out *output) error {
		req.Object = cmd.Flags().Arg(0)
		return deleteObject(ctx, c, out, req, dry)
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cascades := []string{answer.Background, answer.Foreground, answer.Orphan}; !slices.Contains(cascades, req.Cascade) {
			return usageError(fmt.Sprintf("there is no cascade %q\nhint: use one of %s", req.Cascade, strings.Join(cascades, ", ")))
		}
		return oneObject("KIND/NAME")(cmd, args)
	}
	cmd.Long = `Delete an object, and show what becomes of each object that it owns: deleted,
kept by another owner, or orphaned. Events are counted; to list them, use -o
wide. The deletion is refused if the object has changed since.

--cascade=background deletes the object at once, then its dependents.
--cascade=foreground first deletes dependents with blockOwnerDeletion.
--cascade=orphan deletes the object alone. On Kubernetes, use kubectl delete.

An object that cannot be read is deleted in the background only: its finalizers
are ignored.`
	cmd.Example = `  hostler fleet delete tickets/disk-7 --dry-run`
	cmd.Flags().StringVar(&req.Cascade, "cascade", answer.Background, "`POLICY` for dependents: background, foreground or orphan")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be deleted, and change nothing; group hostler may run this")
	return cmd
}

// deleteObject shows what a deletion does, and then requests it. The request names the UID of the
// object that was shown.
func deleteObject(ctx context.Context, c *api.ServerClient, out *output, req answer.DeletionRequest, dry bool) error {
	plan, err := c.DeletionPlan(ctx, req)
	if err != nil {
		return err
	}
	if !dry {
		if _, err := c.Delete(ctx, plan.DeletionRequest); err != nil {
			return err
		}
		plan.Requested = true
	}
	return out.print(plan, func(t *table) { printDeletion(t, out, plan) })
}

func printDeletion(t *table, out *output, d answer.Deletion) {
	counts := map[string]int{}
	t.row("FATE", "OBJECT", "NOTE")
	for _, b := range d.Objects {
		counts[b.Fate]++
	}
	for list := d.Objects; len(list) > 0; {
		b, same := list[0], 1
		if !out.wide() {
			same = sameEvents(list)
		}
		object, note := b.Object, b.Note
		if same > 1 {
			object = fmt.Sprintf("%s (%d Events)", folderOf(b.Object), same)
			note = joined(note, "to list them: -o wide")
		}
		t.row(b.Fate, strings.Repeat("  ", b.Depth)+object, note)
		list = list[same:]
	}
	t.line("")
	line := fmt.Sprintf("%s deleted, %d kept, %d orphaned", count(counts["deleted"], "object"), counts["kept"], counts["orphaned"])
	if !d.Requested {
		t.line("dry run, nothing was changed: %s", line)
	} else {
		t.line("%s deletion requested: %s; `hostler fleet gc plan` shows what is left to do", d.Cascade, line)
	}
	for _, warning := range d.Warnings { // last, where a person sees them below a long table
		t.line("%s %s", out.yellow("warning:"), warning)
	}
}

// folderOf returns the name of an object up to its last slash.
func folderOf(object string) string { return object[:strings.LastIndex(object, "/")+1] }

// sameEvents returns how many Events of one Node with the same fate begin the list; 1 if it begins with another
// object.
func sameEvents(list []answer.Branch) int {
	first := list[0]
	if !strings.HasPrefix(first.Object, "events/") {
		return 1
	}
	other := slices.IndexFunc(list, func(b answer.Branch) bool {
		return b.Fate != first.Fate || b.Depth != first.Depth || b.Note != first.Note || folderOf(b.Object) != folderOf(first.Object)
	})
	if other < 0 {
		return len(list)
	}
	return other
}

func (a *app) fleetGCCommand() *cobra.Command {
	plan := a.serverReader("plan", "Show what the garbage collector changes, and what holds it up", func(ctx context.Context, c *api.ServerClient, out *output) error {
		p, err := c.GarbagePlan(ctx)
		if err != nil {
			return err
		}
		return out.print(p, func(t *table) { printGarbagePlan(t, out, p) })
	})
	return group("gc", "Show the garbage collection by owner references", plan)
}

func printGarbagePlan(t *table, out *output, p answer.GarbagePlan) {
	switch p.State {
	case answer.Leading:
	case answer.Standby, answer.Starting:
		t.line("garbage-collector is %s on this server: only the leader executes this", p.State)
	default:
		t.line("garbage-collector is %s on this server; see `hostler fleet status`", p.State)
		return
	}
	if p.Waits != "" {
		t.line("%s: %s", out.yellow("not everything that is due is known"), t.once(p.Waits))
	}
	switch known := count(p.Objects, "object") + " known"; {
	case len(p.Facts) > 0:
		t.row("STATE", "OBJECT", "ACTION", "REASON")
	case p.Waits != "":
		t.line("%s so far", known)
	case len(p.Kinds)+len(p.Unreadable) > 0:
		t.line("nothing is due of what can be read: %s", known)
	default:
		t.line("nothing is due: %s", known)
	}
	for _, f := range p.Facts {
		t.row(strings.ToLower(f.State), f.Object, f.Action, strings.TrimSuffix(t.below(f.Reason)+": "+f.Hint, ": "))
	}
	printUnread(t, "KIND", p.Kinds)
	printUnread(t, "OBJECT", p.Unreadable)
	t.printCommands()
}

func printUnread(t *table, head string, problems []answer.Problem) {
	printFew(t, t.section(head, "CANNOT BE READ"), problems)
}
