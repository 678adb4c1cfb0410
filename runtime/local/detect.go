package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
)

const (
	// DetectTimeout bounds how long Detect waits for a socket to say which runtime it is.
	DetectTimeout = 3 * time.Second
	// AnswerTimeout bounds how long the question stays open: a service that has to be
	// started for it takes longer than that on a busy host.
	AnswerTimeout = 30 * time.Second
)

// Candidate is a socket behind which a runtime may be.
type Candidate struct {
	Type string // of adapter, such as "cri"
	Name string // what to call the runtime, unique among candidates
	Path string
	// Wakes reports that whoever connects starts its service, as is meant: its containers
	// run without one, so that it may have some although nobody answers yet.
	Wakes bool
}

// NameOf is the name of the runtime at an endpoint: a candidate's, or one made
// of the socket's file name.
func NameOf(candidates []Candidate, endpoint string) string {
	path := strings.TrimPrefix(endpoint, "unix://")
	for _, c := range candidates {
		if c.Path == path {
			return c.Name
		}
	}
	return strings.TrimSuffix(filepath.Base(path), ".sock")
}

// Detected is a candidate whose socket exists.
type Detected struct {
	Candidate
	// RuntimeName and Version are what answers behind it; empty if Err is set.
	RuntimeName string
	Version     string
	// Err says why it is not usable now: runtime.ErrUnsupported where something
	// else answers, runtime.ErrUnavailable where nothing does (yet).
	Err error
	// NotRunning reports that its service does not run, and would be started by whoever
	// connects, which Detect does not but where that is meant.
	NotRunning bool
	// Listens reports that there is somebody at the socket, who may have pods. A
	// socket file outlives who made it.
	Listens bool
}

// NoAnswer reports that there may be a runtime that does not answer yet, or does not
// any more: containerd 1.x serves before it has loaded its pods, says that it is
// "not initialized yet" until then, and its unit counts as started.
func (d Detected) NoAnswer() bool {
	return d.Listens && d.Err != nil && !errors.Is(d.Err, runtime.ErrUnsupported)
}

// Ask asks the runtime at a candidate's socket for its own name and its version. It is
// runtime.ErrUnsupported where something else answers.
type Ask func(ctx context.Context, c Candidate) (name, version string, err error)

// Detector searches for runtimes, again and again. Who has not answered when Detect returns is
// not asked again as long as the question is open, and a late answer is the next Detect's. Its
// zero value is ready, and it is safe for concurrent use.
type Detector struct {
	mu   sync.Mutex
	open map[string]*question // by path; guarded by mu
}

// question is put to a socket once.
type question struct {
	answered chan struct{}
	answer   Detected // then
	at       time.Time
}

// Detect finds the candidates whose socket exists and asks each, all at once,
// which runtime it is. Two paths to the same socket count once. It takes at most
// 3 s, however many of them hang. Where units report that the host goes down, it starts
// nobody; they may be nil.
func (l *Detector) Detect(ctx context.Context, candidates []Candidate, units Units, ask Ask) []Detected {
	return l.detect(ctx, "/proc", candidates, units, ask)
}

func (l *Detector) detect(ctx context.Context, procRoot string, candidates []Candidate, units Units, ask Ask) []Detected {
	var found []Detected
	seen := map[string]bool{}
	for _, c := range candidates {
		real, err := filepath.EvalSymlinks(c.Path)
		if errors.Is(err, fs.ErrNotExist) || seen[real] {
			continue
		}
		d := Detected{Candidate: c}
		if err != nil {
			d.Err = fmt.Errorf("find runtime: %w", err)
		} else if info, err := os.Stat(real); err != nil {
			d.Err = fmt.Errorf("find runtime: %w", err)
		} else if info.Mode().Type() != fs.ModeSocket {
			continue
		}
		seen[real] = true
		found = append(found, d)
	}
	var wg sync.WaitGroup
	for i := range found {
		if found[i].Err == nil {
			wg.Go(func() { found[i] = l.await(ctx, found[i], procRoot, units, ask) })
		}
	}
	wg.Wait()
	return found
}

// await is the answer to the question that is open, or else is put now, if there is one in
// time. Whose service does not run is not asked.
func (l *Detector) await(ctx context.Context, of Detected, procRoot string, units Units, ask Ask) Detected {
	waiting, cancel := context.WithTimeout(ctx, DetectTimeout)
	defer cancel()
	of.Err = (&Activation{ProcRoot: procRoot, Path: of.Path}).Check()
	if of.Err != nil && of.Wakes {
		of.Err = MayWake(waiting, units)
	}
	if of.Err != nil {
		of.NotRunning = true
		return of
	}
	if waiting.Err() == nil { // else nobody is to be started, either
		q := l.question(ctx, of, ask)
		select {
		case <-q.answered:
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.open[of.Path] == q {
				delete(l.open, of.Path)
			}
			return q.answer
		case <-waiting.Done():
		}
	}
	of.Listens = true // who does not is told at once
	of.Err = fmt.Errorf("get runtime version: %w: no answer from %s within %v; it may hang: see its log", runtime.ErrUnavailable, of.Path, DetectTimeout)
	return of
}

// question returns that which is open, or puts one: also where nobody has waited for the
// answer to the last, and that was a failure or is old.
func (l *Detector) question(ctx context.Context, of Detected, ask Ask) *question {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.open[of.Path]; q != nil {
		select {
		case <-q.answered:
			if q.answer.Err == nil && time.Since(q.at) < AnswerTimeout {
				return q
			}
		default:
			return q
		}
	}
	q := &question{answered: make(chan struct{}), answer: of}
	if l.open == nil {
		l.open = map[string]*question{}
	}
	l.open[of.Path] = q
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AnswerTimeout)
		defer cancel()
		q.answer.ask(ctx, ask)
		q.at = time.Now()
		close(q.answered)
	}()
	return q
}

func (d *Detected) ask(ctx context.Context, ask Ask) {
	// Nobody at all is told at once, and by this alone.
	conn, err := Dial(ctx, d.Path)
	if d.Listens = !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT); err == nil {
		_ = conn.Close() // nothing was sent
	}
	if d.RuntimeName, d.Version, d.Err = ask(ctx, d.Candidate); d.Err != nil {
		d.RuntimeName, d.Version = "", ""
	}
}
