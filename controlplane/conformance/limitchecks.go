package conformance

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
)

// checkNames tries names at their limits. An invalid name contains the prefix, too, if possible: if
// a client accepts it, no other object is affected.
func checkNames(ctx context.Context, b *Backend) error {
	longest := fill(b.Name(""), validation.DNS1123SubdomainMaxLength)
	good := []string{b.Name("a"), b.Name("0"), b.Name("a-b.c-d"), longest}
	bad := []string{"", longest + "a", b.Name("Upper"), b.Name("a/b"), b.Name("../b"), b.Name("a_b"), "-" + b.Name("a"), b.Name("a b"), b.Name("ä")}
	for _, name := range good {
		if _, err := registerAlive(ctx, b, name, here); err != nil {
			return fmt.Errorf("name %q: %w", name, err)
		}
		node, err := b.Client.Node(ctx, name)
		if err != nil || node.Name != name {
			return fmt.Errorf("Node(%q) = %v, %w, want it", name, node, orNone(err))
		}
	}
	for _, name := range bad {
		for call, run := range calls(b.Client, name) {
			if call == "PublishEvent()" {
				continue // an Event may be about an object of any name
			}
			if err := wantError(fmt.Sprintf("%s with name %q", call, name), run(ctx), controlplane.ErrInvalid); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill returns a DNS subdomain of that length that begins with prefix. Its labels are as long as
// possible.
func fill(prefix string, length int) string {
	name := []byte(prefix)
	for len(name) < length {
		label := len(name) - 1 - bytes.LastIndexByte(name, '.')
		if label == validation.DNS1123LabelMaxLength && len(name)+1 < length {
			name = append(name, '.')
			continue
		}
		name = append(name, 'a')
	}
	return string(name)
}

func checkManyLabels(ctx context.Context, b *Backend) error {
	wanted := newNode(b.Name("labelled"), here)
	for i := range 10_000 {
		wanted.Labels[fmt.Sprintf("l-%d", i)] = "v"
	}
	if _, err := b.Client.Register(ctx, wanted, controlplane.RegisterOptions{}); err != nil {
		return fmt.Errorf("Register() = %w, want no error", err)
	}
	node, err := b.Client.Node(ctx, b.Name("labelled"))
	if err != nil {
		return fmt.Errorf("Node() = %w, want no error", err)
	}
	for key := range maps.Keys(wanted.Labels) {
		if node.Labels[key] != wanted.Labels[key] {
			return fmt.Errorf("label %s = %q, want %q", key, node.Labels[key], wanted.Labels[key])
		}
	}
	node, err = register(ctx, b, b.Name("labelled"), here)
	if err != nil {
		return err
	}
	if len(node.Labels) >= 10_000 {
		return fmt.Errorf("labels after they are no longer wanted = %d, want few", len(node.Labels))
	}
	return nil
}
