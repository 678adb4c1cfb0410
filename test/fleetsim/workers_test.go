package fleetsim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A source of random numbers belongs to the whole process, and one thread makes runs repeatable. So
// each worker is a process of its own.

// result is what a worker reports about one seed, as a line of JSON.
type result struct {
	Worker   int           `json:"-"`
	Seed     uint64        `json:"seed"`
	Begins   bool          `json:"begins,omitempty"` // the run has just begun
	Hours    float64       `json:"hours,omitempty"`
	CPU      time.Duration `json:"cpu,omitempty"` // of the worker, since its start
	Replayed bool          `json:"replayed,omitempty"`
	Differs  bool          `json:"differs,omitempty"` // the replay did
	Class    string        `json:"class,omitempty"`
	Begun    kind          `json:"begun,omitempty"` // of the last fault before the violation
	Engine   engine        `json:"engine,omitempty"`
	Text     string        `json:"text,omitempty"` // of the first violation of the class
}

// marker begins each line of a worker that is a result.
const marker = "SIM "

// replayEvery is how many runs there are for each one that is repeated.
const replayEvery = 10

// shrinkTime bounds the time for making one plan smaller.
const shrinkTime = 30 * time.Second

// stuck is how much longer than its time a worker may take. A run that holds a mutex while a request waits
// never comes to rest: the stacks then show which.
const stuck = 30 * time.Minute

// TestFleet simulates fleets until its time is over.
func TestFleet(t *testing.T) {
	limit, first := 20*time.Second, uint64(1)
	if given := os.Getenv(variableTime); given != "" {
		var err error
		if limit, err = time.ParseDuration(given); err != nil {
			t.Fatal(err)
		}
	}
	if given := os.Getenv(variableSeed); given != "" {
		var err error
		if first, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if text := os.Getenv(variableUntil); text != "" {
		until(t, first, regexp.MustCompile(text))
		return
	}
	workers := runtime.NumCPU()
	if number := os.Getenv(variableWorker); number != "" {
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		work(t, first+n, uint64(workers), limit)
		return
	}
	results := make(chan result)
	var all sync.WaitGroup
	for n := range workers {
		all.Go(func() { startWorker(t, n, first, limit, results) })
	}
	go func() { all.Wait(); close(results) }()
	summarize(t, results, limit)
}

// work simulates seeds, and reports each.
func work(t *testing.T, seed, step uint64, limit time.Duration) {
	began := time.Now()
	known := map[string]bool{}
	for n := 0; time.Since(began) < limit; n++ {
		tell(result{Seed: seed, Begins: true})
		o := simulateSeeded(t, newPlan(seed))
		r := result{Seed: seed, Hours: o.hours, Class: o.class, Begun: o.begun, Engine: o.plan.Engine}
		if n%replayEvery == 0 {
			r.Replayed, r.Differs = true, differ(o.steps, simulateSeeded(t, newPlan(seed)).steps) >= 0
		}
		r.CPU = cpu()
		if o.class != "" && !known[o.class] {
			known[o.class] = true
			r.Text = shrink(t, o, time.Now().Add(shrinkTime)).explain()
		}
		tell(r)
		seed += step
	}
}

// until simulates seeds until a violation matches, and reports the CPU time for that. It neither repeats a run nor makes a
// plan smaller.
func until(t *testing.T, seed uint64, text *regexp.Regexp) {
	for ; ; seed++ {
		if o := simulateSeeded(t, newPlan(seed)); text.MatchString(o.failure) {
			fmt.Printf("%s%.1f seed %d: %s\n", marker, cpu().Seconds(), seed, o.failure)
			return
		}
	}
}

// cpu returns the CPU time of this process so far. On a busy machine, it says more than the time.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func tell(r result) {
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Println(marker + string(line))
}

// startWorker runs a worker, and passes on its results. If it ends with an error, such as a panic, the
// seed of that is reported.
func startWorker(t *testing.T, number int, first uint64, limit time.Duration, results chan<- result) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestFleet$", "-test.timeout="+(limit+stuck).String())
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400", "GODEBUG=asyncpreemptoff=1", fmt.Sprintf("%s=%d", variableWorker, number), fmt.Sprintf("%s=%d", variableSeed, first), variableTime+"="+limit.String())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	last, rest := pass(number, out, results)
	if err := cmd.Wait(); err != nil {
		results <- result{Seed: last.Seed, Class: "the simulation itself fails", Text: fmt.Sprintf("seed %d: %v\n%s", last.Seed, err, strings.Join(rest, "\n"))}
	}
}

// pass passes on the results in an output. It returns the last one, and the other lines.
func pass(number int, out io.Reader, results chan<- result) (last result, rest []string) {
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		line, is := strings.CutPrefix(scanner.Text(), marker)
		if !is {
			if len(rest) < 100 {
				rest = append(rest, scanner.Text())
			}
			continue
		}
		var r result
		if json.Unmarshal([]byte(line), &r) != nil {
			continue
		}
		r.Worker = number
		if last = r; !r.Begins {
			results <- r
		}
	}
	return last, rest
}

func sum(times map[int]time.Duration) (all time.Duration) {
	for _, d := range times {
		all += d
	}
	return all
}

// With variableSame, at least leastSame percent of the replays must agree. Fewer than leastReplays say nothing.
const (
	leastSame    = 95
	leastReplays = 20
)

// summarize reports all results of a run of a time.
func summarize(t *testing.T, results <-chan result, limit time.Duration) {
	began := time.Now()
	runs, replayed, differs, hours := 0, 0, 0, 0.0
	classes, first, last := map[string]int{}, map[string]time.Duration{}, map[int]time.Duration{}
	for r := range results {
		runs++
		last[r.Worker] = r.CPU
		hours += r.Hours
		if r.Replayed {
			replayed++
		}
		if r.Differs {
			differs++
		}
		if r.Class == "" {
			continue
		}
		name := fmt.Sprintf("%s (%s; the last fault was: %s)", r.Class, r.Engine, r.Begun)
		if classes[name]++; classes[name] == 1 {
			first[name] = sum(last)
		}
		if r.Text != "" {
			t.Error(r.Text)
		} else {
			t.Fail()
		}
	}
	t.Logf("%d seeds, %.1f fleet-hours in %v, of which %v with replays were CPU time, %d of %d replays agree", runs, hours, time.Since(began).Round(time.Second), sum(last).Round(time.Second), replayed-differs, replayed)
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		t.Logf("%4d seeds, the first after %v of CPU time: %s", classes[class], first[class].Round(time.Second), class)
	}
	if os.Getenv(variableSame) != "" && replayed >= leastReplays && (replayed-differs)*100 < replayed*leastSame {
		t.Errorf("%d of %d replays agree, want %d %%", replayed-differs, replayed, leastSame)
	}
	if runs == 0 {
		t.Error("no seed was simulated")
	}
}
