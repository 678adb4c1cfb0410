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

// dropBound is how long systemd is asked to drop a lock.
const dropBound = 10 * time.Second

// lockKeeper owns the locks that this process has, and sees to what systemd keeps of
// them. It makes no call to the bus.
type lockKeeper struct {
	notifier *notify.Notifier
	log      *slog.Logger
	closing  context.Context // ends drop
	close    func()          // ends closing

	mu       sync.Mutex
	held     *lock      // guarded by mu: the lock handed out last, if still closed by nobody
	kept     []*os.File // guarded by mu: locks of an earlier process, not yet read
	unstored bool       // guarded by mu: systemd did not take the latest lock
	stale    bool       // guarded by mu: it may keep locks that were let go
	dropping bool       // guarded by mu: and drop sees to that
}

// lock is what Inhibit hands out: a claim on the descriptor that logind waits
// for. The claim handed out last owns the descriptor; closing an earlier one
// does nothing, so that nobody closes what he no longer has.
type lock struct {
	keeper *lockKeeper
	file   *os.File
	stored bool // guarded by keeper.mu: systemd keeps a duplicate
}

// Close lets the shutdown continue: logind sees the last descriptor closed. An
// error says that systemd still keeps its own, for the moment.
func (l *lock) Close() error {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	if l.keeper.held != l {
		return nil
	}
	l.keeper.held = nil
	return l.keeper.letGo(l.file)
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

// Held reports whether this process holds a lock that logind waits for.
func (k *lockKeeper) Held() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held != nil && honoured(k.held.file)
}

// hold hands out a new lock, and has systemd keep it.
func (k *lockKeeper) hold(file *os.File) *lock {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = &lock{keeper: k, file: file}
	k.store()
	return k.held
}

// takeUp hands out the lock that is held or kept, if logind honours it, and
// lets go of all others. listed is logind's word, given after the bus was up,
// so a logind that was restarted has opened its end of the locks again.
func (k *lockKeeper) takeUp(listed bool) *lock {
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
	var useless []*os.File
	for _, c := range candidates {
		if good == nil && listed && honoured(c.file) {
			good = c
		} else {
			useless = append(useless, c.file)
		}
	}
	if len(useless) > 0 {
		if err := k.letGo(useless...); err != nil {
			k.log.Warn("cannot remove stale shutdown lock", "error", err)
		}
		if good != nil {
			// The store knows only names: removing the invalid descriptor removed the valid one,
			// too.
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

// store has systemd keep the lock that is held, unless it does. One
// that it did not take is offered again by the next Inhibit. Called with mu held.
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

// ReleaseAll gives up every lock of this service: the one held here and those
// that systemd kept of an earlier process. It needs no bus.
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
	return k.letGo(files...)
}

// letGo closes descriptors here and in the store of systemd. The store comes first, because it is
// slower: if the process dies in between, the lock must not be left without owner. If systemd does
// not answer, a goroutine retries for some seconds: a stored lock delays the shutdown. Called with
// mu held, so that no new lock is stored in between.
func (k *lockKeeper) letGo(files ...*os.File) error {
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

// unstore has systemd drop what it keeps, if that is out of date.
// Called with mu held.
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

// drop tries unstore until it works, up to dropBound or closeHere.
func (k *lockKeeper) drop() {
	end := time.Now().Add(dropBound)
	for pause := 50 * time.Millisecond; bounded.Sleep(k.closing, pause) == nil; pause = min(2*pause, time.Second) {
		if k.dropped(time.Now().After(end)) {
			return
		}
	}
}

// dropped makes one attempt, and reports whether no other one is to follow.
func (k *lockKeeper) dropped(last bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.unstore()
	switch {
	case err == nil:
		k.log.Info("systemd dropped the stored shutdown lock")
		if k.held != nil {
			k.store() // it was not, as long as an old one was there
		}
	case last:
		k.log.Warn("systemd still stores an unused shutdown lock that delays shutdowns; run `systemctl stop hostler` to release it", "error", err)
	default:
		return false
	}
	k.dropping = false
	return true
}

// closeHere closes this process's descriptors. What systemd keeps stays effective.
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
