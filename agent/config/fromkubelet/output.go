package fromkubelet

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/agent/config"
)

// output is what hostler is to be told.
type output struct {
	settings map[string]setting // by path, such as imageGC.minimumAge
	missing  []missing
}

// setting is one key of hostler's.
type setting struct {
	value any
	from  string // where it came from, for people
}

// missing is what hostler has no counterpart for.
type missing struct{ key, value, reason string }

func (o *output) set(path string, value any, from string) { o.settings[path] = setting{value, from} }

func (o *output) nothing(g given, reason string) {
	o.missing = append(o.missing, missing{g.from, brief(g.value), reason})
}

// say says one thing that the kubelet is told.
func (o *output) say(g given) error {
	if isNull(g.value) {
		return nil
	}
	if rule, known := rules()[g.key]; known {
		return rule(o, g)
	}
	if !empty(g.value) {
		o.nothing(g, reason(g.key))
	}
	return nil
}

// empty tells of what tools write for want of a value: nobody misses it.
func empty(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode {
		return len(n.Content) == 0
	}
	return slices.Contains([]string{"", "0", "0s"}, n.Value)
}

// longest is how much of a value is shown of which nothing becomes.
const longest = 60

// brief is a value on one line.
func brief(n *yaml.Node) string {
	text := n.Value
	if n.Kind != yaml.ScalarNode {
		flow := *n
		flow.Style = yaml.FlowStyle
		out, err := yaml.Marshal(&flow)
		if err != nil {
			return "..."
		}
		text = string(out)
	}
	text = oneLine(text)
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return text
}

// oneLine keeps what a person wrote within a comment.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// text is the file: hostler's keys in their usual order.
func (o *output) text(name string) ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(config.Default()); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	left := maps.Clone(o.settings)
	if err := prune(&root, "", left); err != nil {
		return nil, err
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("write configuration: hostler has no keys %s", strings.Join(sorted(left), ", "))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# From a kubelet's configuration, %s. What is not here has hostler's own default:\n# see `hostler config default`.\n", oneLine(name))
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if len(root.Content) > 0 {
		if err := enc.Encode(&root); err != nil {
			return nil, fmt.Errorf("write configuration: %w", err)
		}
	}
	o.tail(&b)
	return b.Bytes(), nil
}

// prune leaves of the defaults only what is set, with its values, and takes that from left.
func prune(n *yaml.Node, path string, left map[string]setting) error {
	var kept []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		s, set := left[at]
		if set {
			delete(left, at)
			value = &yaml.Node{}
			if err := value.Encode(s.value); err != nil {
				return fmt.Errorf("write %s: %w", at, err)
			}
			if value.Kind == yaml.ScalarNode {
				value.LineComment = s.from
			} else {
				key.HeadComment = s.from
			}
		} else {
			if value.Kind != yaml.MappingNode {
				continue
			}
			if err := prune(value, at, left); err != nil {
				return err
			}
			if len(value.Content) == 0 {
				continue
			}
		}
		kept = append(kept, key, value)
	}
	n.Content = kept
	return nil
}

// tail names what nothing becomes of, by why.
func (o *output) tail(b *bytes.Buffer) {
	if len(o.missing) == 0 {
		return
	}
	fmt.Fprint(b, "\n# Without a counterpart:\n")
	var order []string
	by := map[string][]missing{}
	for _, m := range o.missing {
		if len(by[m.reason]) == 0 {
			order = append(order, m.reason)
		}
		by[m.reason] = append(by[m.reason], m)
	}
	for _, reason := range order {
		fmt.Fprintf(b, "# - %s:\n", reason)
		slices.SortFunc(by[reason], func(x, y missing) int { return strings.Compare(x.key, y.key) })
		for _, m := range by[reason] {
			fmt.Fprintf(b, "#     %s: %s\n", oneLine(m.key), m.value)
		}
	}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
