package doctor

import "time"

// Certificate is a TLS certificate with which this host authenticates.
type Certificate struct {
	Path         string
	Begins, Ends time.Time
	Renewed      bool // by hostler, after 70 to 90 % of its lifetime
	Refused      bool // by the server, although the dates are valid
}

// aging judges the remaining lifetime. fix is the hint if the certificate has expired or expires soon.
// soon completes the warning that it expires soon; if it is empty, there is no such warning.
func (c *Certificate) aging(now time.Time, fix, soon string) faults {
	var found faults
	left, all := c.Ends.Sub(now), c.Ends.Sub(c.Begins)
	switch {
	case left <= 0:
		found.add(fail(fix, "the certificate in %s expired on %s", c.Path, date(c.Ends)))
	case c.Begins.After(now):
		found.add(fail("check `date` on this host and on the host that signed it", "the certificate in %s is not valid before %s", c.Path, date(c.Begins)))
	case left < all/10 && soon != "":
		found.add(warn(fix, "the certificate in %s expires in %v, on %s: %s", c.Path, left.Round(time.Second), date(c.Ends), soon))
	}
	return found
}

// good is the check of a valid certificate: it says how long the certificate remains valid.
func (c *Certificate) good(now time.Time, more string) Check {
	return ok("the certificate is valid until %s, for %s more%s", date(c.Ends), life(c.Ends.Sub(now)), more)
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
