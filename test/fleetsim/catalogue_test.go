package fleetsim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// drawn draws a fault, or several that belong together. Their times count from the first.
type drawn func(p plan, r *rand.Rand) []fault

// catalogue returns all faults of an engine.
func catalogue(e engine) []drawn {
	kinds := []string{"nodes", "leases", "pods"}
	anyKind := func(r *rand.Rand) string { return kinds[r.IntN(len(kinds))] }
	anyProcess := func(p plan, r *rand.Rand) string {
		if r.IntN(2) == 0 {
			return p.anyServer(r)
		}
		return p.anyHost(r)
	}
	how := func(r *rand.Rand) string { return []string{"", hangs}[r.IntN(2)] }
	all := []drawn{
		func(p plan, r *rand.Rand) []fault {
			return []fault{{roughCalls, []string{"", anyProcess(p, r)}[r.IntN(2)], fmt.Sprint(5 + r.IntN(40)), 0, between(r, 10*time.Second, 3*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{cut, anyProcess(p, r), how(r), 0, between(r, 2*time.Second, 2*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault { // of all servers, as when rights are taken away
			what, most := anyKind(r), between(r, 20*time.Second, 3*time.Minute)
			var all []fault
			for i := range p.Servers {
				all = append(all, fault{watchRefused, serverName(i), what, 0, most})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			what, most := anyKind(r), between(r, 5*time.Second, 3*time.Minute)
			var all []fault
			for i := range p.Servers {
				all = append(all, fault{watchSilent, serverName(i), what, 0, most})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{watchSilent, anyProcess(p, r), anyKind(r), 0, between(r, 2*time.Second, 2*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{watchBroken, anyProcess(p, r), anyKind(r), 0, time.Millisecond}}
		},
		func(p plan, r *rand.Rand) []fault { // some hosts die meanwhile, or shortly before
			all := []fault{{storeAway, "", "", 0, between(r, 3*time.Second, 2*time.Minute)}}
			for i := range p.Hosts {
				if r.IntN(3) == 0 {
					from := between(r, -2*time.Minute, all[0].To)
					all = append(all, fault{hostDies, hostName(i), "", from, from + between(r, 30*time.Second, 5*time.Minute)})
				}
			}
			return all
		},
		func(_ plan, r *rand.Rand) []fault {
			return []fault{{compacted, "", "", 0, time.Millisecond}}
		},
		func(_ plan, r *rand.Rand) []fault {
			return []fault{{storeFull, "", "", 0, between(r, 5*time.Second, time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{hostDies, p.anyHost(r), "", 0, between(r, 10*time.Second, 6*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{serverDies, p.anyServer(r), "", 0, between(r, time.Second, time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{suspended, anyProcess(p, r), "", 0, between(r, 2*time.Second, 2*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault { // several times: a race of milliseconds follows each
			host, all := p.anyHost(r), []fault(nil)
			for i := range 8 {
				from := time.Duration(i)*20*time.Second + between(r, 0, 10*time.Second)
				all = append(all, fault{nodeDeleted, host, "", from, from + time.Millisecond})
			}
			return all
		},
	}
	for range 4 { // reboots make most other faults worse
		all = append(all, func(p plan, r *rand.Rand) []fault { return wanted(p, r, 2) })
	}
	all = append(all,
		func(p plan, r *rand.Rand) []fault { // the last ones want to reboot while the first ones die unseen
			all := append(wanted(p, r, 1), fault{storeAway, "", "", 30 * time.Second, between(r, 40*time.Second, 70*time.Second)})
			for i := range max(1, p.Hosts/2) {
				from := between(r, 25*time.Second, 40*time.Second)
				all = append(all, fault{hostDies, hostName(i), "", from, from + between(r, 2*time.Minute, 4*time.Minute)})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			all := wanted(p, r, 2)
			for range 3 {
				from := between(r, 0, 3*time.Minute)
				all = append(all, fault{slotReleased, p.anyServer(r), "", from, from + time.Millisecond})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			host := p.anyHost(r)
			return []fault{{diskFull, host, "", 0, between(r, time.Minute, 4*time.Minute)}, {rebootWanted, host, "", 5 * time.Second, 6 * time.Second}}
		},
	)
	all = append(all,
		func(p plan, r *rand.Rand) []fault { // a host that was dead long before an outage lives again during it
			all := []fault{{storeAway, "", "", 0, between(r, 30*time.Second, 100*time.Second)}}
			for i := range p.Hosts {
				if r.IntN(2) == 0 {
					from := between(r, -150*time.Second, -60*time.Second)
					all = append(all, fault{hostDies, hostName(i), "", from, between(r, 0, all[0].To+20*time.Second)})
				}
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			host, all := p.anyHost(r), wanted(p, r, 2)
			for range 3 {
				from := between(r, 0, 3*time.Minute)
				all = append(all, fault{agentDies, host, "", from, from + between(r, time.Second, 20*time.Second)})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault { // a host lives again, its Node stays Unknown, and servers start again
			host, dies := p.anyHost(r), between(r, 45*time.Second, 2*time.Minute)
			all := []fault{{hostDies, host, "", 0, dies}, {statusRefused, host, "", 0, dies + between(r, time.Minute, 3*time.Minute)}}
			for range 2 {
				from := between(r, dies, all[1].To)
				for i := range p.Servers {
					all = append(all, fault{serverStops, serverName(i), "", from, from + between(r, time.Second, 20*time.Second)})
				}
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			return []fault{{twinStarts, p.anyHost(r), []string{"", sameMachine}[r.IntN(2)], 0, between(r, time.Minute, 4*time.Minute)}}
		},
		func(p plan, r *rand.Rand) []fault { // of before, amid or after a reboot
			all := wanted(p, r, 2)
			for _, w := range all {
				from := between(r, 0, 2*time.Minute)
				all = append(all, fault{diskBack, w.On, "", from, from + between(r, 20*time.Second, 3*time.Minute)})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			return append(wanted(p, r, 2), fault{checkFlaps, p.anyHost(r), "", 0, between(r, time.Minute, 3*time.Minute)})
		},
		func(p plan, r *rand.Rand) []fault { // persons do several things with one host
			host, all := p.anyHost(r), wanted(p, r, 1)
			does := []kind{personAsks, personAsks, personForces, personStops, personLeaves, slotReleased, nodeDeleted}
			for range 2 + r.IntN(3) {
				from := between(r, 0, 2*time.Minute)
				f := fault{does[r.IntN(len(does))], host, "", from, from + between(r, 5*time.Second, time.Minute)}
				if f.Kind == slotReleased {
					f.On = p.anyServer(r)
				}
				all = append(all, f)
			}
			return all
		},
	)
	all = append(all, func(p plan, r *rand.Rand) []fault {
		all := wanted(p, r, 2)
		for range 4 {
			from := between(r, 0, 2*time.Minute)
			all = append(all, fault{personCordons, p.anyHost(r), []string{"", kubectl}[r.IntN(2)], from, from + between(r, 10*time.Second, 3*time.Minute)})
		}
		return all
	})
	all = append(all, func(p plan, r *rand.Rand) []fault {
		return []fault{{hostDies, p.anyHost(r), forGood, 0, time.Millisecond}}
	}, zoneDies)
	for range 2 { // the race is won rarely
		all = append(all, func(p plan, r *rand.Rand) []fault {
			host, all := p.anyHost(r), []fault(nil)
			for i := range 12 {
				from := time.Duration(i)*15*time.Second + between(r, 0, 10*time.Second)
				all = append(all, fault{nodeDeleted, host, "", from, from + time.Millisecond})
			}
			return all
		})
	}
	all = append(all, func(p plan, r *rand.Rand) []fault {
		if p.Clients == 0 {
			return wanted(p, r, 1)
		}
		name := clientName(r.IntN(p.Clients))
		return []fault{
			{roughCalls, name, fmt.Sprint(20 + r.IntN(50)), 0, between(r, time.Minute, 4*time.Minute)},
			{clientDies, name, "", between(r, 0, 4*time.Minute), 5 * time.Minute},
		}
	})
	for range 2 {
		all = append(all,
			func(p plan, r *rand.Rand) []fault { // a server may decide from old Nodes while a slot is due, and others die
				all := append(wanted(p, r, 2), fault{watchSilent, p.anyServer(r), "nodes", between(r, 0, time.Minute), between(r, 70*time.Second, 4*time.Minute)})
				for range r.IntN(3) {
					from := between(r, 0, 2*time.Minute)
					all = append(all, fault{hostDies, p.anyHost(r), "", from, from + between(r, time.Minute, 4*time.Minute)})
				}
				return all
			},
			func(p plan, r *rand.Rand) []fault { // the servers get the new policy one after the other
				all, policies := wanted(p, r, 2), []policy{anyPolicy(r, 0), anyPolicy(r, 0)}
				for i, policy := range policies {
					for s := range p.Servers {
						from := time.Duration(i)*90*time.Second + between(r, 0, 30*time.Second)
						all = append(all, fault{policyChanges, serverName(s), policy.String(), from, from + between(r, 20*time.Second, 4*time.Minute)})
					}
				}
				return all
			},
		)
	}
	all = append(all,
		func(p plan, r *rand.Rand) []fault {
			return append(wanted(p, r, 2), clockFault(r, p.anyHost(r)))
		},
		func(p plan, r *rand.Rand) []fault { // hosts of a zone die while the clocks of the servers are wrong, and when they are right again
			i, step := r.IntN(p.Hosts), clockFault(r, "")
			all := append(wanted(p, r, 2),
				fault{hostDies, hostName(i), "", 0, between(r, 2*time.Minute, 4*time.Minute)},
				fault{hostDies, hostName((i + 2) % p.Hosts), forGood, between(r, 150*time.Second, 4*time.Minute), 5 * time.Minute})
			for i := range p.Servers {
				all = append(all, fault{clockStepped, serverName(i), step.What, between(r, 0, 30*time.Second), between(r, 90*time.Second, 150*time.Second)})
			}
			return all
		},
		func(p plan, r *rand.Rand) []fault {
			return append(wanted(p, r, 2), fault{memberLags, anyProcess(p, r), between(r, 2*time.Second, 20*time.Second).String(), 0, between(r, time.Minute, 4*time.Minute)})
		},
		func(p plan, r *rand.Rand) []fault { // a host that is cut off drains itself; its agent may start again meanwhile
			host := p.anyHost(r)
			all := []fault{{cut, host, how(r), 0, between(r, 30*time.Second, 4*time.Minute)}}
			for range r.IntN(3) {
				from := between(r, 0, 4*time.Minute)
				all = append(all, fault{[]kind{agentDies, suspended, diskFull}[r.IntN(3)], host, "", from, from + between(r, time.Second, 90*time.Second)})
			}
			return all
		},
	)
	for range 2 {
		all = append(all, func(p plan, r *rand.Rand) []fault {
			return append(wanted(p, r, 1), fault{hostIsHostile, p.anyHost(r), "", between(r, 0, 30*time.Second), between(r, time.Minute, 4*time.Minute)})
		})
	}
	all = append(all,
		func(p plan, r *rand.Rand) []fault {
			from := between(r, 0, 10*time.Second)
			return append(wanted(p, r, 2), fault{storeBack, "", "", from, from + between(r, 10*time.Second, 3*time.Minute)})
		},
		func(_ plan, r *rand.Rand) []fault {
			return []fault{{storeBack, "", "", 0, between(r, 10*time.Second, 3*time.Minute)}}
		},
	)
	if e == etcd {
		all = append(all, func(p plan, r *rand.Rand) []fault {
			from := between(r, 0, 3*time.Minute)
			return append(wanted(p, r, 2), fault{leasesEnded, "", "", from, from + time.Millisecond})
		})
	}
	return append(all, aimed(e)...)
}

// clockFault steps the clock of a machine by seconds, minutes or hours.
func clockFault(r *rand.Rand, machine string) fault {
	by := time.Duration(1+r.IntN(600)) * []time.Duration{time.Second, time.Minute}[r.IntN(2)] * time.Duration(1-2*r.IntN(2))
	return fault{clockStepped, machine, by.String(), between(r, 0, time.Minute), between(r, time.Minute, 5*time.Minute)}
}

// wanted makes some hosts want to reboot, at least so many.
func wanted(p plan, r *rand.Rand, least int) (all []fault) {
	for i := range p.Hosts {
		if len(all) < 4 && (r.IntN(3) > 0 || p.Hosts-i <= least-len(all)) {
			from := between(r, 0, time.Minute)
			all = append(all, fault{rebootWanted, hostName(i), "", from, from + time.Millisecond})
		}
	}
	return all
}
