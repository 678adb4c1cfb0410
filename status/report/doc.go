// Package report writes this host's Node to the control plane: its status, an operator's
// cordon, and Events of how shutdowns and boots went.
//
// It owns what is written when, and what is kept on disk until the control plane has it: the
// final status of a boot, Events, a cordon. It does not judge the host (package status does)
// and knows no control plane by name.
//
// Who owns which state: turn guards registration, statusWriter, observation, published and
// final, so that whoever has the turn may read the host and write. A report of a shutdown
// runs on the guard's goroutine and takes the turn from a round that is in progress, so it does
// not depend on the status loop. view has a mutex of its own, for readers. The watch only hands
// the Node that it saw to the status loop.
package report
