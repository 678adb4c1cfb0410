package restart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/shutdown/restart"
)

// asked is when a shutdown requested the stop of all containers in these tests.
var asked = time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)

// stopped is a container that a shutdown has stopped.
func stopped(change ...func(*runtime.Container)) runtime.Container {
	c := runtime.Container{
		Runtime: "docker", ID: "web", Name: "shop-web", State: runtime.Exited, Restart: runtime.RestartUnlessStopped,
		StartedAt: asked.Add(-time.Hour), FinishedAt: asked.Add(time.Second),
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func pending(change ...func(*journal.Restart)) journal.Restart {
	r := journal.Restart{Runtime: "docker", Pod: "web", ID: "web", AskedAt: asked, Grace: metav1.Duration{Duration: 20 * time.Second}}
	for _, f := range change {
		f(&r)
	}
	return r
}

func policy(p runtime.Restart) func(*runtime.Container) {
	return func(c *runtime.Container) { c.Restart = p }
}

func hostLived(r *journal.Restart) { r.HostLived = true }

func TestOnlyWhatHostlerHasStoppedIsStarted(t *testing.T) {
	runs := func(c *runtime.Container) {
		c.State, c.StartedAt, c.FinishedAt = runtime.Running, time.Time{}, time.Time{}
	}
	ran := func(later time.Duration) func(*journal.Restart) {
		return func(r *journal.Restart) { r.StartedAt = asked.Add(-time.Hour + later).In(time.Local) }
	}
	madeReady := func(c *runtime.Container) { c.State, c.FinishedAt = runtime.Created, time.Time{} }
	runsOn := func(c *runtime.Container) {
		c.State, c.StartedAt, c.FinishedAt = runtime.Running, asked.Add(-time.Hour), time.Time{}
	}
	aSecond := func(journal.Restart) time.Duration { return time.Second }
	anHour := func(journal.Restart) time.Duration { return time.Hour }
	aDay := func(journal.Restart) time.Duration { return 24 * time.Hour }
	tried := func(tries int, ago time.Duration) func(*journal.Restart) {
		return func(r *journal.Restart) {
			r.Tries, r.TriedAt, r.Reason = tries, asked.Add(time.Minute-ago), "no such device"
		}
	}
	for name, tt := range map[string]struct {
		pending journal.Restart
		now     []runtime.Container
		facts   restart.Facts
		want    string // action, outcome and a part of the reason
	}{
		"unless-stopped":                 {pending: pending(), now: []runtime.Container{stopped()}, want: "start"},
		"always: Docker has started it":  {pending: pending(), now: []runtime.Container{stopped(policy(runtime.RestartByRuntime), runs)}, want: "settle runs"},
		"always: Docker may start it":    {pending: pending(), now: []runtime.Container{stopped(policy(runtime.RestartByRuntime))}, want: "wait"},
		"always: Docker could not":       {pending: pending(), now: []runtime.Container{stopped(policy(runtime.RestartByRuntime))}, facts: restart.Facts{AnsweringFor: func(journal.Restart) time.Duration { return 10 * time.Second }}, want: "start"},
		"on-failure, of Podman":          {pending: pending(), now: []runtime.Container{stopped(policy(runtime.RestartNotAtBoot))}, want: "settle left policy"},
		"no":                             {pending: pending(), now: []runtime.Container{stopped(policy(runtime.RestartNever))}, want: "settle left policy"},
		"a policy that nobody knows yet": {pending: pending(), now: []runtime.Container{stopped(policy(runtime.RestartUnknown))}, want: "wait"},
		"an end that nobody knows yet":   {pending: pending(), now: []runtime.Container{stopped(func(c *runtime.Container) { c.StartedAt = time.Time{} })}, want: "wait"},
		"an unknown policy":              {pending: pending(), now: []runtime.Container{stopped(policy(runtime.RestartUnknown))}, facts: restart.Facts{AnsweringFor: anHour}, want: "settle failed policy is unknown"},
		"an unknown end":                 {pending: pending(), now: []runtime.Container{stopped(func(c *runtime.Container) { c.StartedAt = time.Time{} })}, facts: restart.Facts{AnsweringFor: anHour}, want: "settle failed last run"},
		"one that stays made ready":      {pending: pending(), now: []runtime.Container{stopped(madeReady)}, facts: restart.Facts{AnsweringFor: anHour}, want: "settle failed Created"},
		"one after an hour of answers":   {pending: pending(), now: []runtime.Container{stopped()}, facts: restart.Facts{AnsweringFor: anHour}, want: "start"},
		"an end that is an earlier run's": {pending: pending(ran(time.Hour - 30*time.Second)), now: []runtime.Container{stopped(func(c *runtime.Container) {
			c.StartedAt, c.FinishedAt = asked.Add(-30*time.Second), asked.Add(-31*time.Second)
		})}, want: "start"},
		"one that somebody removed":                  {pending: pending(), want: "settle left removed"},
		"one that its unit creates again":            {pending: pending(func(r *journal.Restart) { r.ByUnit = true }), want: "settle left unit"},
		"one that somebody started":                  {pending: pending(), now: []runtime.Container{stopped(runs)}, want: "settle runs"},
		"one that somebody started, and stopped":     {pending: pending(), now: []runtime.Container{stopped(func(c *runtime.Container) { c.StartedAt = asked.Add(time.Minute) })}, want: "settle left started after"},
		"one that somebody had stopped before":       {pending: pending(), now: []runtime.Container{stopped(func(c *runtime.Container) { c.FinishedAt = asked.Add(-time.Millisecond) })}, want: "settle left before"},
		"one that was between two attempts":          {pending: pending(func(r *journal.Restart) { r.Restarting = true }), now: []runtime.Container{stopped(func(c *runtime.Container) { c.FinishedAt = asked.Add(-time.Second) })}, want: "start"},
		"a clock set back since, and the same run":   {pending: pending(ran(0)), now: []runtime.Container{stopped(func(c *runtime.Container) { c.FinishedAt = asked.Add(-48 * time.Hour) })}, want: "start"},
		"a clock set back before, and the same run":  {pending: pending(ran(2 * time.Hour)), now: []runtime.Container{stopped(func(c *runtime.Container) { c.StartedAt = asked.Add(time.Hour) })}, want: "start"},
		"the same run, which had ended just before":  {pending: pending(ran(0)), now: []runtime.Container{stopped(func(c *runtime.Container) { c.FinishedAt = asked.Add(-time.Second) })}, want: "settle left before"},
		"another run, which somebody started":        {pending: pending(ran(0)), now: []runtime.Container{stopped(func(c *runtime.Container) { c.StartedAt = asked.Add(time.Minute) })}, want: "settle left started after"},
		"another run, that no list had shown":        {pending: pending(ran(-time.Hour)), now: []runtime.Container{stopped()}, want: "start"},
		"one that ended only when the host did":      {pending: pending(), now: []runtime.Container{stopped(func(c *runtime.Container) { c.FinishedAt = asked.Add(time.Hour) })}, want: "start"},
		"one that nobody saw end":                    {pending: pending(), now: []runtime.Container{stopped(func(c *runtime.Container) { c.FinishedAt = time.Time{} })}, want: "start"},
		"one of a systemd unit":                      {pending: pending(hostLived), now: []runtime.Container{stopped(policy(runtime.RestartByUnit))}, want: "settle left unit"},
		"one that somebody has made ready":           {pending: pending(), now: []runtime.Container{stopped(madeReady)}, want: "wait"},
		"a start that was cut off in the middle":     {pending: pending(tried(1, time.Minute)), now: []runtime.Container{stopped(madeReady)}, want: "start"},
		"a runtime that does not answer":             {pending: pending(), facts: restart.Facts{Unreachable: func(string) bool { return true }}, want: "wait"},
		"a runtime that is gone":                     {pending: pending(), facts: restart.Facts{Unreachable: func(string) bool { return true }, Waited: aDay}, want: "settle left day"},
		"a runtime that was gone, and answers":       {pending: pending(), now: []runtime.Container{stopped()}, facts: restart.Facts{Waited: aDay}, want: "start"},
		"the host lived, and its clock was set back": {pending: pending(hostLived, func(r *journal.Restart) { r.AskedAt = asked.Add(time.Hour) }), now: []runtime.Container{stopped(runs)}, want: "settle runs"},
		"a runtime that cannot":                      {pending: pending(), now: []runtime.Container{stopped(policy(runtime.RestartUnknown))}, facts: restart.Facts{Unable: func(string) bool { return true }}, want: "settle left cannot"},
		"switched off":                               {pending: pending(), now: []runtime.Container{stopped()}, facts: restart.Facts{Never: true}, want: "settle left never"},
		"switched off, of a runtime that is away":    {pending: pending(), facts: restart.Facts{Never: true, Unreachable: func(string) bool { return true }}, want: "settle left never"},
		"what was settled":                           {pending: pending(func(r *journal.Restart) { r.Outcome = journal.Restarted }), now: []runtime.Container{stopped()}, want: ""},
		"a start that failed a moment ago":           {pending: pending(tried(1, 4*time.Second)), now: []runtime.Container{stopped()}, want: "wait"},
		"a start that failed a while ago":            {pending: pending(tried(1, 5*time.Second)), now: []runtime.Container{stopped()}, want: "start"},
		"a start that failed by a clock set back":    {pending: pending(tried(1, -time.Hour)), now: []runtime.Container{stopped()}, want: "start"},
		"starts that failed, and take longer pauses": {pending: pending(tried(3, 44*time.Second)), now: []runtime.Container{stopped()}, want: "wait"},
		"a start that failed time and again":         {pending: pending(tried(5, time.Hour)), now: []runtime.Container{stopped()}, want: "settle failed no such device"},
		"one that was tried, and runs":               {pending: pending(tried(1, 0)), now: []runtime.Container{stopped(runs)}, want: "settle runs"},

		"the host lived: unless-stopped":   {pending: pending(hostLived), now: []runtime.Container{stopped()}, want: "start"},
		"the host lived: always":           {pending: pending(hostLived), now: []runtime.Container{stopped(policy(runtime.RestartByRuntime))}, want: "start"},
		"the host lived: on-failure":       {pending: pending(hostLived), now: []runtime.Container{stopped(policy(runtime.RestartNotAtBoot))}, want: "start"},
		"the host lived: no":               {pending: pending(hostLived), now: []runtime.Container{stopped(policy(runtime.RestartNever))}, want: "settle left policy"},
		"the host lived: one yet to end":   {pending: pending(hostLived, func(r *journal.Restart) { r.Grace.Duration = 56 * time.Second }), now: []runtime.Container{stopped(runs)}, want: "wait"},
		"the host lived: a runtime hung":   {pending: pending(hostLived, ran(0)), now: []runtime.Container{stopped(runsOn)}, facts: restart.Facts{AnsweringFor: aSecond}, want: "wait"},
		"the host lived: it hung long ago": {pending: pending(hostLived, ran(0)), now: []runtime.Container{stopped(runsOn)}, facts: restart.Facts{AnsweringFor: anHour}, want: "settle runs"},
		"the host lived: a later run":      {pending: pending(hostLived, ran(-time.Hour)), now: []runtime.Container{stopped(runsOn)}, facts: restart.Facts{AnsweringFor: aSecond}, want: "settle runs"},
		"the host lived: one that runs on": {pending: pending(hostLived), now: []runtime.Container{stopped(runs)}, want: "settle runs"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.facts.Restarts = []journal.Restart{tt.pending}
			tt.facts.Pods = []runtime.Pod{{Runtime: "docker", ID: "web", Containers: tt.now}}
			if tt.facts.Unreachable == nil {
				tt.facts.Unreachable = func(string) bool { return false }
			}
			list := restart.Plan(tt.facts, asked.Add(time.Minute))
			if len(list) == 0 && tt.want == "" {
				return
			}
			words := strings.SplitN(tt.want, " ", 3)
			if len(list) != 1 {
				t.Fatalf("Plan() = %+v, want %q", list, tt.want)
			}
			d := list[0]
			settled := len(words) > 1
			if string(d.Action) != words[0] || settled && string(d.Restart.Outcome) != words[1] || len(words) > 2 && !strings.Contains(d.Restart.Reason, words[2]) {
				t.Errorf("Plan() = %s %s %q, want %s", d.Action, d.Restart.Outcome, d.Restart.Reason, tt.want)
			}
			if settled == d.Restart.At.IsZero() || (d.Action == restart.Start || !d.Due.IsZero()) != (d.Container.ID == "web") {
				t.Errorf("Plan() = %+v, want the time of what is settled, and the container to start", d)
			}
		})
	}
}

// Containers are started in the reverse order of their stops, and before those that need them. That
// includes dependencies through a container that the runtime starts itself.
func TestTheStartOrderIsTheReversedStopOrder(t *testing.T) {
	needs := map[string]string{"proxy": "web", "web": "api", "api": "db cache", "ring": "loop", "loop": "ring db"}
	var facts restart.Facts
	facts.Unreachable = func(string) bool { return false }
	shop := runtime.Pod{Runtime: "docker", ID: "compose:shop"}
	for _, id := range []string{"proxy", "web", "api", "ring", "loop", "db", "cache"} {
		shop.Containers = append(shop.Containers, stopped(func(c *runtime.Container) { c.ID, c.StopsBefore = id, strings.Fields(needs[id]) }))
		if id != "api" {
			facts.Restarts = append(facts.Restarts, pending(func(r *journal.Restart) { r.ID, r.Pod = id, shop.ID }))
		}
	}
	facts.Pods = []runtime.Pod{shop}
	for id, priority := range map[string]int32{"dns": plan.CriticalPriority, "alone": 0, "last": -5} {
		facts.Pods = append(facts.Pods, runtime.Pod{Runtime: "docker", ID: id, Containers: []runtime.Container{stopped(func(c *runtime.Container) { c.ID = id })}})
		facts.Restarts = append(facts.Restarts, pending(func(r *journal.Restart) { r.ID, r.Pod, r.Priority = id, id, priority }))
	}
	list := restart.Plan(facts, asked.Add(time.Minute))
	var ids []string
	for i, d := range list {
		var after []string
		for _, n := range d.After {
			if n >= i {
				t.Errorf("%s is to come after number %d, which is not before it", d.Restart.ID, n)
			}
			after = append(after, list[n].Restart.ID)
		}
		slices.Sort(after)
		ids = append(ids, fmt.Sprintf("%s%v", d.Restart.ID, after))
	}
	want := "dns[] alone[] db[] cache[] web[cache db] ring[db] loop[db] proxy[web] last[]"
	if got := strings.Join(ids, " "); got != want {
		t.Errorf("Plan() = %s, want %s", got, want)
	}
}

// Sixty layers of two services, each of which needs both services of the layer below. The number of
// paths is exponential.
func TestTheOrderOfManyLayersIsFound(t *testing.T) {
	facts := restart.Facts{Unreachable: func(string) bool { return false }}
	pod := runtime.Pod{Runtime: "docker", ID: "layers"}
	for layer := range 60 {
		for side := range 2 {
			id := fmt.Sprintf("%02d-%d", layer, side)
			pod.Containers = append(pod.Containers, stopped(func(c *runtime.Container) {
				c.ID, c.StopsBefore = id, []string{fmt.Sprintf("%02d-0", layer+1), fmt.Sprintf("%02d-1", layer+1)}
			}))
			facts.Restarts = append(facts.Restarts, pending(func(r *journal.Restart) { r.ID, r.Pod = id, pod.ID }))
		}
	}
	facts.Pods = []runtime.Pod{pod}
	list := restart.Plan(facts, asked.Add(time.Minute))
	if first, last := list[0].Restart.ID, list[len(list)-1].Restart.ID; len(list) != 120 || first != "59-0" || last != "00-1" {
		t.Errorf("Plan() begins with %s and ends with %s, want the lowest layer first", first, last)
	}
}

// A container waits for those that it needs, but not forever, and not after they have failed.
func TestAContainerWaitsForItsDependencies(t *testing.T) {
	running := func(c *runtime.Container) {
		c.State, c.StartedAt, c.FinishedAt = runtime.Running, time.Time{}, time.Time{}
	}
	slow := func(r *journal.Restart) { r.Grace.Duration = 2 * time.Minute }
	tried := func(r *journal.Restart) { r.Tries, r.TriedAt = 1, asked.Add(time.Minute) }
	for name, tt := range map[string]struct {
		db      runtime.Container
		pending journal.Restart
		waited  time.Duration
		want    string
	}{
		"container exited":                     {stopped(), pending(hostLived), 0, "db=start web=start proxy=start"},
		"it may be about to end":               {stopped(running), pending(hostLived, slow), 0, "db=wait web=wait proxy=wait"},
		"it may be, for long":                  {stopped(running), pending(hostLived, slow), 3 * time.Minute, "db=wait web=wait proxy=wait"},
		"its grace is over":                    {stopped(running), pending(hostLived), 0, "db=settle web=start proxy=start"},
		"nobody knows its policy":              {stopped(policy(runtime.RestartUnknown)), pending(), time.Minute, "db=wait web=wait proxy=wait"},
		"nobody knows its policy for long":     {stopped(policy(runtime.RestartUnknown)), pending(), 2 * time.Minute, "db=wait web=start proxy=start"},
		"it did not start, and is tried again": {stopped(), pending(tried), 0, "db=wait web=start proxy=start"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := runtime.Pod{Runtime: "docker", ID: "shop"}
			facts := restart.Facts{Unreachable: func(string) bool { return false }, AnsweringFor: func(journal.Restart) time.Duration { return tt.waited }}
			for id, needs := range map[string]string{"db": "", "web": "db", "proxy": "web"} {
				c, r := stopped(), pending(hostLived)
				if id == "db" {
					c, r = tt.db, tt.pending
				}
				c.ID, c.StopsBefore = id, strings.Fields(needs)
				r.ID, r.Pod = id, pod.ID
				pod.Containers, facts.Restarts = append(pod.Containers, c), append(facts.Restarts, r)
			}
			facts.Pods = []runtime.Pod{pod}
			var got []string
			for _, d := range restart.Plan(facts, asked.Add(time.Minute)) {
				got = append(got, d.Restart.ID+"="+string(d.Action))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("Plan() = %v, want %s", got, tt.want)
			}
		})
	}
}

// A container that shares the network of another one, in a pod of its own, starts after that one,
// whatever its policy is. It is not tried without it.
func TestAContainerThatSharesANetworkStartsAfterItsOwner(t *testing.T) {
	joins := map[string]string{"app": "vpn", "log": "app"}
	settled := func(journal.Restart) time.Duration { return time.Minute }
	tried := func(tries int, ago time.Duration) func(*journal.Restart) {
		return func(r *journal.Restart) { r.Tries, r.TriedAt = tries, asked.Add(time.Minute-ago) }
	}
	for name, tt := range map[string]struct {
		pending map[string]func(*journal.Restart)
		need    string // the mount that vpn waits for
		want    string
	}{
		"all have ended":                  {want: "vpn=start app=start log=start"},
		"the first waits for its mount":   {need: "/mnt/nas", want: "vpn=wait app=wait log=wait"},
		"the first did not start yet":     {pending: map[string]func(*journal.Restart){"vpn": tried(1, time.Second)}, want: "vpn=wait app=wait log=wait"},
		"the first is tried again":        {pending: map[string]func(*journal.Restart){"vpn": tried(1, 6*time.Second), "app": tried(1, time.Second)}, want: "vpn=start app=start log=start"},
		"the last is not to be tried yet": {pending: map[string]func(*journal.Restart){"log": tried(1, time.Second)}, want: "vpn=start app=start log=start"},
		"the first is over":               {pending: map[string]func(*journal.Restart){"vpn": func(r *journal.Restart) { r.Outcome = journal.RestartFailed }}, want: "app=start log=start"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := restart.Facts{Unreachable: func(string) bool { return false }, AnsweringFor: settled}
			for _, id := range []string{"app", "log", "vpn"} {
				r := pending(func(r *journal.Restart) { r.ID, r.Pod = id, id })
				if change := tt.pending[id]; change != nil {
					change(&r)
				}
				facts.Restarts = append(facts.Restarts, r)
				facts.Pods = append(facts.Pods, runtime.Pod{Runtime: "docker", ID: id, Containers: []runtime.Container{stopped(func(c *runtime.Container) {
					c.ID, c.Joins, c.StopsBefore = id, strings.Fields(joins[id]), strings.Fields(joins[id])
					if id != "vpn" { // dockerd could not start it
						c.Restart = runtime.RestartByRuntime
					}
				})}})
			}
			facts.Host = &restart.HostFacts{Needs: func(r journal.Restart) (runtime.StartNeeds, bool) {
				if r.ID == "vpn" {
					return runtime.StartNeeds{Paths: []string{"/mnt/nas/x"}}, true
				}
				return runtime.StartNeeds{}, true
			}}
			if tt.need != "" {
				facts.Host.PendingUnits = []restart.PendingUnit{{Unit: "mnt-nas.mount", Path: tt.need}}
			}
			var got []string
			for _, d := range restart.Plan(facts, asked.Add(time.Minute)) {
				got = append(got, d.Restart.ID+"="+string(d.Action))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("Plan() = %v, want %s", got, tt.want)
			}
		})
	}
}
