package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/systemd/notify"
)

// dropBound is how long systemd is asked to drop a lock from its store.
const dropBound = 10 * time.Second

// lockKeeper owns the locks of this process, and their duplicates in systemd's descriptor store. It
// makes no calls to the bus.
type lockKeeper struct {
	notifier *notify.Notifier
	log      *slog.Logger
	closing  context.Context // cancels drop
	close    func()          // cancels closing

	mu       sync.Mutex
	held     *lock      // guarded by mu: the lock handed out last, nil if it was closed
	kept     []*os.File // guarded by mu: locks of an earlier process, not used yet
	unstored bool       // guarded by mu: systemd did not store the latest lock
	stale    bool       // guarded by mu: systemd may still store locks that were released
	dropping bool       // guarded by mu: drop is running because of stale
}

// lock is the result of Inhibit: a claim on the descriptor for which logind waits. The last claim
// owns the descriptor. Closing an earlier claim does nothing, so that nobody closes a descriptor
// that they no longer own.
type lock struct {
	keeper *lockKeeper
	file   *os.File
	stored bool // guarded by keeper.mu: systemd stores a duplicate
}

// Close lets the shutdown continue, because logind sees the last descriptor closed. An error means
// that systemd still stores a duplicate, for the moment.
func (l *lock) Close() error {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	if l.keeper.held != l {
		return nil
	}
	l.keeper.held = nil
	return l.keeper.releaseFiles(l.file)
}

func newLockKeeper(notifier *notify.Notifier, kept []*os.File, log *slog.Logger) *lockKeeper {
	k := &lockKeeper{notifier: notifier, log: log}
	k.closing, k.close = context.WithCancel(context.Background())
	for _, file := range kept {
		if file.Name() == StoredLock {
			k.kept = append(k.kept, file)
		}
	}
	return k
}

// Held reports whether this process holds a lock for which logind waits.
func (k *lockKeeper) Held() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held != nil && honoured(k.held.file)
}

// hold hands out a new lock, and makes systemd store it.
func (k *lockKeeper) hold(file *os.File) *lock {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = &lock{keeper: k, file: file}
	k.store()
	return k.held
}

// reuse hands out the held or stored lock if logind honors it, and releases all others. delayed reports whether logind has
// any lock that delays a shutdown, of anybody. It must be read after the bus is up: a restarted logind has then opened its
// end of the locks again.
func (k *lockKeeper) reuse(delayed bool) *lock {
	k.mu.Lock()
	defer k.mu.Unlock()
	var candidates []*lock
	if k.held != nil {
		candidates = append(candidates, &lock{keeper: k, file: k.held.file, stored: k.held.stored})
	}
	for _, file := range k.kept {
		candidates = append(candidates, &lock{keeper: k, file: file, stored: true})
	}
	k.held, k.kept = nil, nil

	var good *lock
	var invalid []*os.File
	for _, c := range candidates {
		if good == nil && delayed && honoured(c.file) {
			good = c
		} else {
			invalid = append(invalid, c.file)
		}
	}
	if len(invalid) > 0 {
		if err := k.releaseFiles(invalid...); err != nil {
			k.log.Warn("cannot remove stale shutdown lock", "error", err)
		}
		if good != nil {
			// The store identifies descriptors only by name, so removing the invalid descriptor has
			// also removed the valid one.
			good.stored = false
		}
	}
	if good == nil {
		return nil
	}
	k.held = good
	k.store()
	return k.held
}

// store makes systemd store the held lock, unless it does already. If that fails, the next Inhibit
// tries again. The caller holds mu.
func (k *lockKeeper) store() {
	if k.held.stored {
		return
	}
	err := k.unstore()
	if err == nil {
		err = k.notifier.StoreFile(StoredLock, k.held.file)
	}
	switch {
	case err != nil && !k.unstored:
		k.log.Warn("systemd did not store the shutdown lock, a restart of this service would release it", "error", err)
	case err == nil && k.unstored:
		k.log.Info("systemd stores the shutdown lock again")
	}
	k.held.stored, k.unstored = err == nil, err != nil
}

// ReleaseAll releases every lock of this service: the held one, and those that systemd stored from
// an earlier process. It needs no bus.
func (k *lockKeeper) ReleaseAll() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	files := k.kept
	if k.held != nil {
		files = append(files, k.held.file)
	}
	k.held, k.kept = nil, nil
	if len(files) == 0 && !k.stale {
		return nil
	}
	return k.releaseFiles(files...)
}

// releaseFiles closes descriptors here and in systemd's store. The store comes first, because it is
// slower: if the process dies in between, the lock must not stay without an owner. If systemd does
// not answer, a goroutine retries for some seconds, because a stored lock delays the shutdown. The
// caller holds mu, so that no new lock is stored in between.
func (k *lockKeeper) releaseFiles(files ...*os.File) error {
	k.stale = true
	errs := []error{k.unstore()}
	if k.stale && !k.dropping {
		k.dropping = true
		go k.drop()
	}
	for _, file := range files {
		if err := file.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the shutdown lock: %w", err))
		}
	}
	return errors.Join(errs...)
}

// unstore makes systemd drop its stored locks, if they are outdated. The caller holds mu.
func (k *lockKeeper) unstore() error {
	if !k.stale {
		return nil
	}
	if err := k.notifier.RemoveFiles(StoredLock); err != nil {
		return err
	}
	k.stale = false
	return nil
}

// drop retries unstore until it succeeds, for up to dropBound or until closeHere.
func (k *lockKeeper) drop() {
	end := time.Now().Add(dropBound)
	for pause := 50 * time.Millisecond; bounded.Sleep(k.closing, pause) == nil; pause = min(2*pause, time.Second) {
		if k.dropped(time.Now().After(end)) {
			return
		}
	}
}

// dropped makes one attempt, and reports whether it was the last one.
func (k *lockKeeper) dropped(last bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.unstore()
	switch {
	case err == nil:
		k.log.Info("systemd dropped the stored shutdown lock")
		if k.held != nil {
			k.store() // it was not stored while an old one was
		}
	case last:
		k.log.Warn("systemd still stores an unused shutdown lock that delays shutdowns; run `systemctl stop hostler` to release it", "error", err)
	default:
		return false
	}
	k.dropping = false
	return true
}

// closeHere closes this process's descriptors. Locks that systemd stores stay effective.
func (k *lockKeeper) closeHere() error {
	k.close()
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	if k.held != nil {
		errs = append(errs, k.held.file.Close())
		k.held = nil
	}
	for _, file := range k.kept {
		errs = append(errs, file.Close())
	}
	k.kept = nil
	return errors.Join(errs...)
}
