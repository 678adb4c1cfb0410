// Package report writes this host's Node to the control plane: its status, an operator's cordon,
// and Events of shutdowns and boots.
//
// It owns what is written when, and what is stored on disk until the control plane has it: the
// final status of a boot, Events, a cordon. It does not judge the host (package status does), and
// depends on no particular control plane.
//
// turn guards registration, statusWriter, observation, published and final: its holder may read the
// host and write. A shutdown's report runs on the guard's goroutine and takes the turn from a round
// in progress, so it does not depend on the status loop. view has its own mutex, for readers. The
// watch only passes the Nodes that it sees to the status loop.
package report
