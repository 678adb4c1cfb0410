package cli

import (
	"context"
	"errors"
	"os"
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
