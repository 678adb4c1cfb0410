package drain

// Observe has f called for each change of a container's state, by the goroutine of d.Run.
func Observe(d *Drain, f func(from, to State)) { d.observe = f }
