package runtimetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
)

// Op is an operation of a Fake: a method of runtime.Runtime, or a point inside one.
type Op string

// The operations that are recorded and can be made to fail.
const (
	Info             Op = "Info"
	Pods             Op = "Pods"
	Images           Op = "Images"
	ImageFilesystems Op = "ImageFilesystems"
	Layers           Op = "Layers"
	StopContainer    Op = "StopContainer"
	StopPod          Op = "StopPod"
	StartContainer   Op = "StartContainer"
	RemoveContainer  Op = "RemoveContainer"
	RemovePod        Op = "RemovePod"
	RemoveImage      Op = "RemoveImage"
	Watch            Op = "Watch"

	// RemoveImageWindow is not a call but a point inside RemoveImage: after the runtime has checked
	// whether the image is in use, and before it removes it.
	RemoveImageWindow Op = "RemoveImageWindow"

	// Every stands for all operations except RemoveImageWindow.
	Every Op = ""
)

// Fault is how an operation fails. Parts can be combined: first a delay, then a hang, then the
// error.
type Fault struct {
	Delay time.Duration
	// Hang blocks the call until Release, the end of its context, or the Fake's CallTimeout.
	Hang bool
	// Err is returned without doing the operation.
	Err error
	// LosesReply does the operation and then returns Err, as if the connection broke between the
	// two.
	LosesReply bool
	// InvalidAnswers makes Info and lists return impossible values: no names, future times, sizes
	// larger than any disk.
	InvalidAnswers bool

	Subject string // ID of the object; all objects if empty
	Times   int    // number of calls; all calls until Release if zero
}

// Injection is an active Fault.
type Injection struct {
	op    Op
	fault Fault

	reached  chan struct{}
	released chan struct{}
	once     sync.Once // closes released
	left     int       // calls that it will still affect, if fault.Times > 0; guarded by Fake.mu
	hits     int       // calls that it affected; guarded by Fake.mu
}

// Reached is closed when the fault affects its first call.
func (i *Injection) Reached() <-chan struct{} { return i.reached }

// Release ends the fault; calls that hang in it continue. It may be called again.
func (i *Injection) Release() { i.once.Do(func() { close(i.released) }) }

// Inject makes an operation fail until Release. If several faults match a call, the last injected
// one applies.
func (f *Fake) Inject(op Op, fault Fault) *Injection {
	i := &Injection{op: op, fault: fault, reached: make(chan struct{}), released: make(chan struct{}), left: fault.Times}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.injections = append(f.injections, i)
	return i
}

// hit returns the fault for a call and counts the call. The caller holds mu.
func (f *Fake) hit(op Op, subject string) *Injection {
	f.injections = slices.DeleteFunc(f.injections, func(i *Injection) bool {
		select {
		case <-i.released:
			return true
		default:
			return i.fault.Times > 0 && i.left == 0
		}
	})
	for _, i := range slices.Backward(f.injections) {
		fits := i.op == op || i.op == Every && op != RemoveImageWindow
		if fits && (i.fault.Subject == "" || i.fault.Subject == subject) {
			i.left--
			if i.hits++; i.hits == 1 {
				close(i.reached)
			}
			return i
		}
	}
	return nil
}

// pass applies the matching fault to a call, and returns its error.
func (f *Fake) pass(ctx context.Context, op Op, subject string) (Fault, error) {
	f.mu.Lock()
	if f.isClosed {
		f.mu.Unlock()
		return Fault{}, fmt.Errorf("%w: closed", runtime.ErrUnavailable)
	}
	i := f.hit(op, subject)
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Fault{}, err
	}
	if i == nil {
		return Fault{}, nil
	}
	if i.fault.Delay > 0 {
		timer := time.NewTimer(i.fault.Delay)
		defer timer.Stop()
		if err := f.wait(ctx, timer.C, nil); err != nil {
			return Fault{}, err
		}
	}
	if i.fault.Hang {
		if err := f.wait(ctx, nil, i.released); err != nil {
			return Fault{}, err
		}
	}
	if i.fault.Err != nil && !i.fault.LosesReply {
		return Fault{}, i.fault.Err
	}
	return i.fault, nil
}

// wait blocks until one of the channels is ready, or returns an error if the call ends first.
func (f *Fake) wait(ctx context.Context, timer <-chan time.Time, done <-chan struct{}) error {
	deadline := time.NewTimer(f.opts.CallTimeout)
	defer deadline.Stop()
	select {
	case <-timer:
		return nil
	case <-done:
		return nil
	case <-ctx.Done():
		return endOf(ctx)
	case <-f.closed:
		return fmt.Errorf("%w: closed", runtime.ErrUnavailable)
	case <-deadline.C:
		return fmt.Errorf("%w: no answer within %v (%w)", runtime.ErrUnavailable, f.opts.CallTimeout, context.DeadlineExceeded)
	}
}

// endOf returns the error of a call whose context ended while the runtime did not answer.
func endOf(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded {
		return fmt.Errorf("%w: no answer in time (%w)", runtime.ErrUnavailable, ctx.Err())
	}
	return ctx.Err()
}

// begin records a call and applies its fault. The function that it returns records the end, and
// must be called with the call's own error.
func (f *Fake) begin(ctx context.Context, op Op, subject string, grace time.Duration) (Fault, func(error) error, error) {
	call := &Call{Op: op, Subject: subject, Grace: grace, Start: time.Now()}
	f.mu.Lock()
	f.seen.calls = append(f.seen.calls, call)
	f.seen.atOnce++
	var takes time.Duration
	if f.opts.CallTime != nil {
		takes = f.opts.CallTime(op, f.seen.atOnce)
	}
	f.mu.Unlock()
	fault, err := f.pass(ctx, op, subject)
	if err == nil && takes > 0 {
		timer := time.NewTimer(takes)
		err = f.wait(ctx, timer.C, nil)
		timer.Stop()
	}
	finish := func(err error) error {
		if err == nil && fault.LosesReply {
			err = fault.Err
		}
		if err != nil {
			err = fmt.Errorf("%s %s: %w", op, subject, err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.seen.atOnce--
		call.End, call.Err = time.Now(), err
		return err
	}
	return fault, finish, err
}
