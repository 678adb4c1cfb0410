package embedded

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// load reads what an earlier run left.
func (c *Client) load() error {
	values, err := c.store.Load()
	if err != nil {
		return err
	}
	taken := [MaxEvents]bool{}
	for key, value := range values {
		switch {
		case key == keyNode:
			c.node = decode[corev1.Node](c, key, value)
		case key == keyLease:
			c.lease, c.past = decode[coordinationv1.Lease](c, key, value), true
		case strings.HasPrefix(key, keyEventPrefix):
			slot, err := strconv.Atoi(strings.TrimPrefix(key, keyEventPrefix))
			if err != nil || slot < 0 || slot >= MaxEvents || key != eventKey(slot) || taken[slot] {
				continue // another version's; it is in nobody's way
			}
			if e := decode[corev1.Event](c, key, value); e != nil {
				taken[slot] = true
				c.events = append(c.events, event{slot: slot, event: e})
			}
		}
	}
	slices.SortStableFunc(c.events, func(a, b event) int {
		return cmp.Compare(versionOf(a.event), versionOf(b.event))
	})
	for slot, used := range taken {
		if !used {
			c.free = append(c.free, slot)
		}
	}
	return nil
}

// object is an API type by its pointer.
type object[T any] interface {
	*T
	metav1.Object
}

// decode reads one stored object and moves the resourceVersion past it; nil
// with a warning where the value makes no sense.
func decode[T any, P object[T]](c *Client, key string, value []byte) P {
	p := P(new(T))
	err := json.Unmarshal(value, p)
	if err == nil && p.GetName() == "" {
		err = errors.New("it has no name")
	}
	if err != nil {
		c.log.Warn("stored object cannot be read, going on without it", "key", key, "error", err)
		return nil
	}
	c.version = max(c.version, versionOf(p))
	return p
}

// versionOf is the resourceVersion as a number; zero where it is none.
func versionOf(o metav1.Object) uint64 {
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}
