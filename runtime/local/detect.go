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
	// DetectTimeout bounds how long Detect waits for a socket's answer.
	DetectTimeout = 3 * time.Second
	// AnswerTimeout bounds one request to a socket. It is longer than the start of a service on a
	// busy host, which the request may cause.
	AnswerTimeout = 30 * time.Second
)

// Candidate is a socket that may belong to a runtime.
type Candidate struct {
	Type string // of the adapter, such as "cri"
	Name string // name of the runtime, unique among candidates
	Path string
	// Wakes means that hostler may connect even if that starts the service. The containers of such
	// a runtime run without a service, so they may exist although nobody answers yet.
	Wakes bool
}

// NameOf returns the name of the runtime at an endpoint: the name of a candidate, or one derived
// from the socket's file name.
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
	// RuntimeName and Version come from the runtime. They are empty if Err is set.
	RuntimeName string
	Version     string
	// Err is why the runtime is not usable now: runtime.ErrUnsupported if something else answers,
	// runtime.ErrUnavailable if nothing answers (yet).
	Err error
	// NotRunning means that the service does not run and would be started by a connection. Then
	// Detect does not connect, except as Wakes permits.
	NotRunning bool
	// Listens means that a process listens on the socket, so it may have pods. A socket file may
	// outlive its process.
	Listens bool
}

// NoAnswer reports that there may be a runtime that does not answer yet or any more. containerd 1.x
// serves before it has loaded its pods. Until then it returns "not initialized yet", although its
// unit counts as started.
func (d Detected) NoAnswer() bool {
	return d.Listens && d.Err != nil && !errors.Is(d.Err, runtime.ErrUnsupported)
}

// Ask requests the name and version of the runtime at a candidate's socket. It returns
// runtime.ErrUnsupported if something else answers.
type Ask func(ctx context.Context, c Candidate) (name, version string, err error)

// Detector searches for runtimes repeatedly. While a socket's answer is pending after Detect has
// returned, it sends no second request; the next Detect returns the late answer. Its zero value is
// ready to use. It is safe for concurrent use.
type Detector struct {
	mu   sync.Mutex
	open map[string]*question // by path; guarded by mu
}

// question is a request to a socket.
type question struct {
	answered chan struct{}
	answer   Detected // valid once answered is closed
	at       time.Time
}

// Detect finds the candidates whose socket exists, and asks all of them concurrently which runtime
// they are. Two paths to the same socket count once. It takes at most 3 s, however many of them
// hang. If units report that the host is shutting down, it starts no service. units may be nil.
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

// await returns the answer to the pending request, or to a new one, if there is an answer in time.
// It sends no request to a service that does not run.
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
	if waiting.Err() == nil { // else do not start a service, either
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
	of.Listens = true // a socket without a listener fails immediately
	of.Err = fmt.Errorf("get runtime version: %w: no answer from %s within %v; it may hang: see its log", runtime.ErrUnavailable, of.Path, DetectTimeout)
	return of
}

// question returns the pending request, or starts one. It also starts one if the last answer was
// not read and is an error or old.
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
	// Only this connection shows at once that nobody listens.
	conn, err := Dial(ctx, d.Path)
	if d.Listens = !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT); err == nil {
		_ = conn.Close() // nothing was sent
	}
	if d.RuntimeName, d.Version, d.Err = ask(ctx, d.Candidate); d.Err != nil {
		d.RuntimeName, d.Version = "", ""
	}
}
