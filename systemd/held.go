package systemd

import (
	"os"
	"slices"

	"hostler.io/hostler/systemd/logindconf"
)

// Held tells whether this process holds a lock that logind waits for.
func (l *Logind) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held != nil && honoured(l.held.file)
}

// Own returns those of locks that delay a shutdown in this service's name and
// were taken by this user. The process that took one may be an earlier one.
func (l *Logind) Own(locks []InhibitorLock) []InhibitorLock {
	return slices.DeleteFunc(slices.Clone(locks), func(k InhibitorLock) bool {
		return k.Who != l.options.Who || k.Mode != "delay" || !k.Inhibits("shutdown") || k.UID != uint32(os.Geteuid())
	})
}

// Files is what logind's files say of its longest delay, now; logind may run with
// an older reading.
func (l *Logind) Files() logindconf.Delay { return logindconf.ReadDelay(l.options.Root, DropInPath) }
