package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/wire"
)

// Down is the result of a shutdown.
type Down struct {
	Off       bool // the machine is off; Start boots it again
	Took      time.Duration
	NewKernel bool // the boot ID has changed; not after a soft-reboot
}

// Start boots a machine that is off, and returns when it is up.
func (m *Machine) Start() {
	m.t.Helper()
	select {
	case <-m.bed.off():
	default:
		m.t.Fatalf("start %s: it is on", m)
	}
	if err := m.bed.start(); err != nil {
		m.t.Fatalf("start %s: %v", m, err)
	}
	ctx, cancel := m.bounded("the machine to boot")
	defer cancel()
	if off := m.awaitUp(ctx); off {
		m.t.Fatalf("start %s: it went off:\n%s", m, m.console(40))
	}
}

// awaitUp waits until another boot than the last one is up, or the machine is off. If a unit has
// failed, the test ends, unless the machine is Tolerant: hostler must not be tested on a broken
// machine.
func (m *Machine) awaitUp(ctx context.Context) (off bool) {
	m.t.Helper()
	hello, off, err := m.nextBoot(ctx)
	if err != nil {
		m.t.Fatalf("%s: %v:\n%s", m, err, m.console(40))
	}
	if off {
		return true
	}
	m.boot = hello
	for {
		r, err := m.Try(ctx, "systemctl is-system-running --wait")
		switch state := strings.TrimSpace(r.Stdout); {
		case err != nil && ctx.Err() != nil:
			m.t.Fatalf("%s: %v:\n%s", m, err, m.console(40))
		case state == "running":
			if !m.Options.Unguarded {
				m.AwaitArmed()
			}
			return false
		case state == "degraded" && m.Options.Tolerant:
			m.t.Logf("%s is up but degraded:\n%s", m, m.Run("systemctl --failed --no-pager"))
			return false
		case state == "degraded":
			m.t.Fatalf("%s is up but degraded:\n%s", m, m.Run("systemctl --failed --no-pager; journalctl -b -p warning --no-pager | tail -n 40"))
		}
		select {
		case <-ctx.Done():
		case <-time.After(m.pause(0)):
		}
	}
}

// nextBoot waits until another boot than the last one answers, or the machine is off.
func (m *Machine) nextBoot(ctx context.Context) (hello wire.Hello, off bool, err error) {
	for {
		hello, off, err = m.awaitHello(ctx)
		if !errors.Is(err, errStuck) {
			return hello, off, err
		}
		m.t.Logf("%s: %v: its power is cut\n%s", m, err, m.console(5))
		if err := errors.Join(m.bed.cut(), m.bed.start()); err != nil {
			return hello, off, err
		}
	}
}

// errStuck says that the bed hangs. It is not a failure of the machine.
var errStuck = errors.New("nothing came of the reset")

// awaitHello is nextBoot, but returns errStuck if the bed hangs.
func (m *Machine) awaitHello(ctx context.Context) (hello wire.Hello, off bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	went := make(chan struct{})
	end := m.bed.off()
	go func() {
		check := time.NewTicker(time.Second)
		defer check.Stop()
		for {
			select {
			case <-end:
				close(went)
				cancel(nil)
			case <-check.C:
				if !m.bed.stuck() {
					continue
				}
				cancel(errStuck)
			case <-ctx.Done():
			}
			return
		}
	}()
	hello, err = m.link.Await(ctx, func(h wire.Hello) bool {
		return h.BootID != m.boot.BootID || !h.ManagerStartedAt.Equal(m.boot.ManagerStartedAt)
	})
	select {
	case <-went:
		return hello, true, nil
	default:
		return hello, false, err
	}
}

// GoesDown runs a command that ends this boot, and returns when the machine is up again, after any
// kind of reboot, or off. It does not wait for the end of the command, but a command that fails
// ends the test.
func (m *Machine) GoesDown(how string) Down {
	m.t.Helper()
	return m.AwaitDown("`"+how+"`", func() error {
		go func() {
			ctx, cancel := m.bounded("the machine to go down")
			defer cancel()
			r, err := m.Try(ctx, how)
			if err == nil && r.Code != 0 {
				m.t.Errorf("`%s` in %s = code %d:\n%s%s", how, m, r.Code, r.Stdout, r.Stderr)
			}
		}()
		return nil
	})
}

// AwaitDown calls begin, which runs what. It returns when the machine has gone down and is up
// again, or is off.
func (m *Machine) AwaitDown(what string, begin func() error) Down {
	m.t.Helper()
	before, began := m.boot.BootID, time.Now()
	if err := begin(); err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
	ctx, cancel := m.bounded("the machine to go down after " + what)
	defer cancel()
	off := m.awaitUp(ctx)
	return Down{Off: off, Took: time.Since(began), NewKernel: off || m.boot.BootID != before}
}

// CtrlAltDel presses these keys on a VM's keyboard, and returns when the machine is up again or
// off. In a container, PID 1 gets the signal that the kernel sends for these keys.
func (m *Machine) CtrlAltDel() Down {
	m.t.Helper()
	if m.Options.Bed == Container {
		return m.GoesDown("kill -INT 1")
	}
	return m.AwaitDown("Ctrl-Alt-Del", func() error { return m.bed.press(ctrlAltDel) })
}

// PowerButton presses a VM's power button, and returns when the VM is off or up again.
func (m *Machine) PowerButton() Down {
	m.t.Helper()
	return m.AwaitDown("the power button", func() error { return m.bed.press(powerButton) })
}

// CutPower cuts the machine's power, and returns when it is off. A VM loses what it has not synced
// yet. A container loses nothing, because its files are the host's.
func (m *Machine) CutPower() {
	m.t.Helper()
	if err := m.bed.cut(); err != nil {
		m.t.Fatalf("cut the power: %v", err)
	}
}

func (m *Machine) console(lines int) string {
	text, err := os.ReadFile(filepath.Join(m.dir, "console.log"))
	if err != nil {
		return err.Error()
	}
	return lab.LastLines(string(text), lines)
}

// leave stores the journals of all boots, the output of hostler and systemd, and the console, for
// the analysis of a failure.
func (m *Machine) leave(dist string) {
	dir := filepath.Join(dist, m.t.Name(), m.String())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Errorf("leave the journal: %v", err)
		return
	}
	// A machine that does not answer any more is booted again, because its disk has its journals.
	text, err := "", wire.ErrGone
	select {
	case <-m.bed.off():
	default:
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		text, err = m.journals(ctx)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err = errors.Join(m.bed.cut(), m.bed.start()); err == nil {
			text, err = m.journals(ctx)
		}
	}
	if err != nil {
		text = fmt.Sprintf("the journal could not be read: %v\n", err)
	}
	console, consoleErr := os.ReadFile(filepath.Join(m.dir, "console.log"))
	err = errors.Join(consoleErr,
		os.WriteFile(filepath.Join(dir, "journal.txt"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(dir, "console.txt"), console, 0o644))
	if err != nil {
		m.t.Errorf("leave the journal: %v", err)
	}
	m.t.Logf("the journal and the console of %s are in %s", m, dir)
}

func (m *Machine) journals(ctx context.Context) (string, error) {
	r, err := m.Try(ctx, `journalctl --list-boots --no-pager; journalctl --no-pager -o short-precise
		hostler status -o wide; hostler ps; hostler shutdown plan
		systemctl list-jobs --no-pager; systemctl list-units --all --no-pager`)
	return r.Stdout + r.Stderr, err
}
