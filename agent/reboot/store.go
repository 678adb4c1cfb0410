package reboot

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// diskTime bounds a read or write of the disk.
const diskTime = 5 * time.Second

// What a person reads about a memory that cannot be read.
const (
	unreadMemory = "reboot.state in `state.directory` cannot be read"
	unreadFix    = "if that does not end, rename the file: hostler then forgets an earlier reboot"
)

var (
	// errChanged reports that the request is not the one from which a change was decided.
	errChanged = errors.New("the request has changed")
	// errDisk is why a write was given up.
	errDisk = fmt.Errorf("the disk did not answer within %v", diskTime)
)

// commit makes a change effective after it is on the disk. It refuses the change if the request is not, or
// does not stay, the one from which the change was decided: a person may change it at any time. It returns
// the new request. After an error, nothing has changed.
func (c *Controller) commit(ctx context.Context, before *Request, change func(*Memory)) (*Request, error) {
	c.mu.Lock()
	if c.memory.Request != before {
		c.mu.Unlock()
		return nil, errChanged
	}
	next := c.memory.changed(change)
	c.o.Store.SaveNow(func() any { return next })
	c.mu.Unlock()
	err := c.flush(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory.Request != before {
		err = errChanged
	}
	if err != nil {
		c.save() // the disk has, or may still get, the refused change
		return nil, err
	}
	c.memory = next
	return next.Request, nil
}

// amend is commit for a change of the current request, whichever it is.
func (c *Controller) amend(ctx context.Context, change func(*Request)) error {
	for {
		c.mu.Lock()
		before := c.memory.Request
		c.mu.Unlock()
		if _, err := c.commit(ctx, before, func(m *Memory) { change(m.Request) }); !errors.Is(err, errChanged) {
			return err
		}
	}
}

// replace makes a change effective at once, and stores it. It is for changes that begin nothing. It refuses the
// change if the request is not the one from which the change was decided.
func (c *Controller) replace(before *Request, change func(*Memory)) (*Request, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory.Request != before {
		return nil, errChanged
	}
	c.memory = c.memory.changed(change)
	c.save()
	return c.memory.Request, nil
}

// edit is replace for a change of the current request, whichever it is.
func (c *Controller) edit(change func(*Request)) Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := *c.memory.Request
	next := before
	if change(&next); next != before {
		c.memory.Request = &next
		c.save()
	}
	return next
}

// say sets the message of a request, which is not worth a write. It returns the current request; nil if it is
// another one.
func (c *Controller) say(before *Request, message string) *Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory.Request != before {
		return nil
	}
	if before.Message != message {
		next := *before
		next.Message = message
		c.memory.Request = &next
	}
	return c.memory.Request
}

// changed returns a copy with a change. Published requests are never modified.
func (m Memory) changed(change func(*Memory)) Memory {
	if m.Request != nil {
		copied := *m.Request
		m.Request = &copied
	}
	change(&m)
	return m
}

// Unread reports whether it is not known if there is a reboot, because the memory cannot be read yet.
func (c *Controller) Unread() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unknown()
}

// HasTurn reports whether the host has its turn to reboot, or may have it, because that is not known yet.
func (c *Controller) HasTurn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unknown() || c.memory.Request != nil && c.memory.Request.Step.Running()
}

// unknown is Unread for a caller that holds mu. A person may have requested a reboot since.
func (c *Controller) unknown() bool { return c.unread && c.memory.Request == nil }

// reread reads the memory again if it could not be read. It reports whether it still cannot: a reboot may be in
// progress, so nothing is decided, and nothing is written.
func (c *Controller) reread(ctx context.Context) bool {
	if !c.Unread() {
		return false
	}
	bound, cancel := context.WithTimeout(ctx, diskTime)
	defer cancel()
	_ = c.loading.Call(bound) // the store logs the error
	return c.Unread()
}

// load reads the memory.
func (c *Controller) load() error {
	var stored Memory
	c.o.Store.Load(&stored)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory.Request == nil { // a person has requested no reboot since
		c.memory = stored
	}
	c.unread = c.o.Store.Unread()
	return nil
}

// save stores the memory. The caller holds mu.
func (c *Controller) save() {
	snapshot := c.memory
	c.o.Store.SaveNow(func() any { return snapshot })
}

// flush waits until the stored memory is on the disk.
func (c *Controller) flush(ctx context.Context) error {
	bound, cancel := context.WithTimeoutCause(ctx, diskTime, errDisk)
	defer cancel()
	err := c.disk.Call(bound)
	if ctx.Err() != nil { // the agent ends: the disk is not the cause
		return err
	}
	c.mu.Lock()
	before := c.unstored
	c.unstored = err
	c.mu.Unlock()
	switch {
	case err != nil && before == nil:
		c.log.Warn("cannot store the step of the reboot", "error", err)
	case err == nil && before != nil:
		c.log.Info("step of the reboot stored again")
	}
	return err
}
