package drain

// Observe sets f, which the goroutine of d.Run calls for each change of a container's state.
func Observe(d *Drain, f func(from, to State)) { d.observe = f }
