//go:build integration

package bench_test

import (
	"maps"
	"slices"
	"syscall"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
)

const (
	settling    = 30 * time.Second
	idleWindows = 5 // together they contain a round of every loop, including image collection
	idleWindow  = time.Minute

	megabyte = 1_000_000
)

// measureIdle measures an idle agent, minute by minute.
func (t *bed) measureIdle(into *table) {
	_, end := t.login()
	defer end()
	a := startAgent(t.b, true)
	defer a.end(syscall.SIGTERM)
	s := a.await("the guard is armed and the images are known", func(s api.Status) bool {
		return s.Shutdown.State == shutdown.Armed && s.ImageGC.Images == imageCount && s.ImageGC.LastRun != nil
	})
	if s.ContainerGC.Containers < podCount {
		t.b.Fatalf("the agent knows %d containers, want %d", s.ContainerGC.Containers, podCount)
	}
	time.Sleep(settling)

	const where = "idle: "
	anonymous := figure{name: where + "anonymous memory", unit: "MB", target: 12}
	pss := figure{name: where + "PSS", unit: "MB"}
	processor := figure{name: where + "CPU in a minute", unit: "s", target: 0.1}
	reported := figure{name: where + "CRI calls in a minute, as the agent counts", unit: "calls", target: 30}
	seen := figure{name: where + "CRI calls in a minute, as a proxy counts", unit: "calls", target: 30}
	methods := map[string]int{}
	for range idleWindows {
		calls, began, ran := a.calls(), time.Now(), a.processorSeconds()
		time.Sleep(idleWindow)
		processor.samples = append(processor.samples, a.processorSeconds()-ran)
		reported.samples = append(reported.samples, sum(a.calls())-sum(calls))
		through := t.proxy.since(began)
		seen.samples = append(seen.samples, float64(len(through)))
		for _, c := range through {
			methods[c.method]++
		}
		memory := a.memory()
		anonymous.samples = append(anonymous.samples, memory["Anonymous"]/megabyte)
		pss.samples = append(pss.samples, memory["Pss"]/megabyte)
	}
	for _, f := range []figure{anonymous, pss, processor, reported, seen} {
		into.add(f)
	}
	for _, method := range slices.Sorted(maps.Keys(methods)) {
		into.add(figure{name: "these by method: " + method, unit: "in all", samples: []float64{float64(methods[method])}})
	}
}

func sum(counts map[string]float64) (total float64) {
	for _, n := range counts {
		total += n
	}
	return total
}
