package podcache

// Tolerations counts the lists of tolerations that the cache has.
func (c *Cache) Tolerations() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tolerations)
}
