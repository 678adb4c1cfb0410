package cli

import (
	"context"
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"
)

// A command may wait for something that ignores its context, such as a read from a disk.
func TestASecondSignalEndsACommandThatHangs(t *testing.T) {
	signals, hangs := make(chan os.Signal, 2), make(chan struct{})
	defer close(hangs)
	a := newApp(Process{Signals: signals})
	signals <- os.Interrupt
	err := a.interruptible(func(ctx context.Context) error {
		<-ctx.Done()
		signals <- os.Interrupt
		<-hangs
		return nil
	})
	if !errors.Is(err, errInterrupted) {
		t.Errorf("interruptible() = %v, want %v", err, errInterrupted)
	}
}

// `timeout` sends SIGTERM to the command and to its group, and a session that ends sends two signals, too.
func TestASecondSignalOfNoPersonLetsACommandCleanUp(t *testing.T) {
	signals, cleaned := make(chan os.Signal, 2), false
	signals <- syscall.SIGTERM
	signals <- syscall.SIGTERM
	err := newApp(Process{Signals: signals}).interruptible(func(ctx context.Context) error {
		<-ctx.Done()
		for len(signals) > 0 {
			runtime.Gosched()
		}
		cleaned = true
		return ctx.Err()
	})
	if !errors.Is(err, errInterrupted) || !cleaned {
		t.Errorf("interruptible() = %v, cleaned up = %t, want %v after the end of the command", err, cleaned, errInterrupted)
	}
}
