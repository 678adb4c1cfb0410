package doctor

import "time"

// Certificate is one by which this host proves who it is.
type Certificate struct {
	Path         string
	Begins, Ends time.Time
	Renewed      bool // by hostler, once 70 to 90 % of its life are over
	Refused      bool // by the server, although it is good by its dates
}

// aging judges how much of its life is left. fix is what to do about its end, and soon is
// said of one that is near it; empty where nothing is to be said.
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

// good says how long it is good for.
func (c *Certificate) good(now time.Time, more string) Check {
	return ok("the certificate is valid until %s, for %s more%s", date(c.Ends), life(c.Ends.Sub(now)), more)
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
