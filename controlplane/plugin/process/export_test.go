package process

import "time"

// Hurry has a program serve within d, be asked every interval, and end within grace.
func (p *Process) Hurry(serve, interval, grace time.Duration) {
	p.serve, p.interval, p.grace = serve, interval, grace
}
