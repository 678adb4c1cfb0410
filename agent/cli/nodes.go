package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/fleet"
)

func (a *app) nodesCommand() *cobra.Command {
	var watch bool
	var cmd *cobra.Command
	cmd = a.reader("nodes [NAME]", "Show the hosts of the fleet, the worst first", func(ctx context.Context, c *api.Client, out *output) error {
		draw := func(ctx context.Context) error { return a.showFleet(ctx, c, out, watch) }
		if name := cmd.Flags().Arg(0); name != "" {
			draw = func(ctx context.Context) error { return showMember(ctx, c, out, name) }
		}
		if watch {
			return a.redraw(ctx, out, draw)
		}
		return draw(ctx)
	})
	cmd.Args = oneNode
	cmd.Long = `Show the hosts of the fleet as the control plane stores them, the worst first.
With NAME, show one host in full.

LEASE shows how long ago the host renewed its Lease, or how long ago the Lease
expired. "deleted" means that the control plane deleted the expired Lease. The
age compares the clock of that host with the clock of this host: if it is
implausible, check both clocks.

-o json and -o yaml print a v1.NodeList, sorted by name; with NAME, the Node and
its Lease. Exits 0 also if hosts have problems.`
	cmd.Flags().BoolVar(&watch, "watch", false, "refresh every two seconds until interrupted, less often if the list takes long")
	return cmd
}

// oneNode rejects more than one name. It also rejects an empty name, for example from an unset
// variable.
func oneNode(_ *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return usageError(fmt.Sprintf("hostler nodes takes at most one name, got %q\nhint: run `hostler nodes` to list all hosts", args))
	case len(args) == 1 && args[0] == "":
		return usageError("hostler nodes got an empty name\nhint: run `hostler nodes` to list all hosts")
	}
	return nil
}

// showFleet prints all hosts: JSON and YAML as they arrive, tables when all are known.
func (a *app) showFleet(ctx context.Context, c *api.Client, out *output, watch bool) error {
	switch out.format {
	case "json":
		return stream(ctx, c, &nodeList{w: out.w, begin: "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"NodeList\",\n  \"metadata\": {},\n  \"items\": [", between: ",", end: "\n  ]\n}\n", none: "]\n}\n", item: jsonItem})
	case "yaml":
		return stream(ctx, c, &nodeList{w: out.w, begin: "apiVersion: v1\nkind: NodeList\nmetadata: {}\nitems:", end: "", none: " []\n", first: "\n", item: yamlItem})
	}
	var seen []hostRow
	in, err := c.Fleet(ctx, func(m fleet.Member) error {
		seen = append(seen, newHostRow(out, m))
		return nil
	})
	if err != nil {
		return err
	}
	limit := 0
	if watch {
		lines, _ := a.size()
		limit = max(0, lines-1) // the cursor needs the last line
	}
	return out.print(nil, func(t *table) { printFleet(t, out, in, seen, limit) })
}

// nodeList writes a v1.NodeList item by item, because a fleet may be too large for memory.
type nodeList struct {
	w                   io.Writer
	begin, between, end string
	first, none         string // written before the first item; written instead of first and end if there are no items
	item                func(*corev1.Node) ([]byte, error)
	written             int
}

// stream prints the fleet. It prints nothing before the first host arrives, so that a rejected
// request leaves no partial list.
func stream(ctx context.Context, c *api.Client, l *nodeList) error {
	in, err := c.Fleet(ctx, func(m fleet.Member) error { return l.add(m.Node) })
	if err != nil {
		return err
	}
	last := l.end
	if l.written == 0 {
		last = l.begin + l.none
	}
	if _, err = io.WriteString(l.w, last); err == nil && in.Message != "" {
		return errors.New("incomplete: " + in.Message) // a v1.NodeList cannot contain the message
	}
	return err
}

func (l *nodeList) add(node *corev1.Node) error {
	text, err := l.item(node)
	if err != nil {
		return fmt.Errorf("write node %s: %w", node.Name, err)
	}
	before := l.between
	if l.written == 0 {
		before = l.begin + l.first
	}
	l.written++
	_, err = io.WriteString(l.w, before+string(text))
	return err
}

func jsonItem(node *corev1.Node) ([]byte, error) {
	text, err := json.MarshalIndent(node, "    ", "  ")
	return append([]byte("\n    "), text...), err
}

func yamlItem(node *corev1.Node) ([]byte, error) { return yaml.Marshal([]*corev1.Node{node}) }
