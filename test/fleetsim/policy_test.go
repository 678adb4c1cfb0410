package fleetsim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/slots"
)

// policy configures the only group of a fleet.
type policy struct {
	Slots          int    `json:"slots"`
	OneZone        bool   `json:"oneZone"`
	MaxUnavailable string `json:"maxUnavailable"`
}

// String is what parsePolicy reads.
func (p policy) String() string { return fmt.Sprint(p.Slots, p.OneZone, " ", p.MaxUnavailable) }

func parsePolicy(text string) (p policy) {
	if _, err := fmt.Sscan(text, &p.Slots, &p.OneZone, &p.MaxUnavailable); err != nil {
		panic(err)
	}
	return p
}

// anyPolicy draws a policy with at least some slots.
func anyPolicy(r *rand.Rand, slots int) policy {
	return policy{slots + r.IntN(4-slots), r.IntN(2) == 0, []string{"0", "1", "2", "10%", "34%", "50%"}[r.IntN(6)]}
}

// newPolicy draws the policy of a fleet. That of half of all fleets is the default.
func newPolicy(r *rand.Rand) policy {
	if r.IntN(2) == 0 {
		return policy{1, true, "10%"}
	}
	return anyPolicy(r, 1)
}

func (p policy) groups() config.Groups {
	return config.Groups{controlplane.DefaultRebootGroup: {Slots: p.Slots, OneZoneAtATime: p.OneZone, MaxUnavailable: p.MaxUnavailable}}
}

// effective is a policy that a server has from a time on.
type effective struct {
	policy
	from time.Time
}

// configure gives a server another policy. Its next processes have it too.
func (s *server) configure(p policy) {
	s.policies = append(s.policies, effective{p, time.Now()})
	if s.controllers != nil {
		s.controllers.Reboots().SetPolicies(p.groups().Policies())
	}
}

// decideTime is how long before its write a server may have read its policy: each request and its repetitions have
// their time.
const decideTime = 4 * callTime

// permits returns the most that the policies of a server permit, of those that it may have had when it decided.
func (s *server) permits(asked time.Time, members int) (most, unavailable int, oneZone bool) {
	oneZone = true
	for i, p := range s.policies {
		if i+1 < len(s.policies) && s.policies[i+1].from.Before(asked.Add(-decideTime)) {
			continue
		}
		part, err := slots.ParsePart(p.MaxUnavailable)
		if err != nil {
			panic(err)
		}
		most, unavailable, oneZone = max(most, p.Slots), max(unavailable, part.Of(members)), oneZone && p.OneZone
	}
	return most, unavailable, oneZone
}
