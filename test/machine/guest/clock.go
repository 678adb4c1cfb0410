package main

import "golang.org/x/sys/unix"

// setClock tells the kernel that its clock is right, as those do who set clocks.
func setClock() error {
	const (
		status   = 0x10 // ADJ_STATUS in adjtimex(2)
		maxError = 0x04 // ADJ_MAXERROR
	)
	_, err := unix.Adjtimex(&unix.Timex{Modes: status | maxError})
	return err
}
