package embedded

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// load reads what an earlier run left.
func (c *Client) load() {
	c.nodes.Load(&c.node)
	c.leases.Load(&c.lease)
	c.events.Load(&c.latest)
	c.past = c.lease != nil
	c.latest = slices.DeleteFunc(c.latest, func(e *corev1.Event) bool { return e == nil })
	c.latest = slices.Delete(c.latest, 0, max(0, len(c.latest)-MaxEvents))
	if c.node != nil {
		c.version = max(c.version, versionOf(c.node))
	}
	if c.lease != nil {
		c.version = max(c.version, versionOf(c.lease))
	}
	for _, e := range c.latest {
		c.version = max(c.version, versionOf(e))
	}
}

// versionOf is the resourceVersion as a number; zero where it is none.
func versionOf(o metav1.Object) uint64 {
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}

func (c *Client) storedNode() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node.DeepCopy()
}

func (c *Client) storedLease() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lease.DeepCopy()
}

// storedEvents are not changed any more once they are there.
func (c *Client) storedEvents() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.latest)
}
