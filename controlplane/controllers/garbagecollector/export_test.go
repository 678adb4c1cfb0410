package garbagecollector

// Remembered is how many deleted Nodes and types of owners the controller remembers.
func (c *Controller) Remembered() int {
	c.graph.mu.Lock()
	defer c.graph.mu.Unlock()
	return len(c.graph.deleted) + len(c.graph.depends)
}
