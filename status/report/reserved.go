package report

import "hostler.io/hostler/status"

// noteReserved tells the log that the host does not have what is reserved of it, and
// when it has it again. At the start and by a reload such a reservation is refused;
// but a host may shrink later, and a filesystem come later.
func (r *Reporter) noteReserved(facts status.Facts, o status.Options) {
	err := status.CheckReserved(facts, o.Reserved, o.Pressure)
	switch {
	case err != nil && !r.short:
		r.o.Log.Warn("the host does not have what is reserved of it: none is left for pods", "error", err)
	case err == nil && r.short:
		r.o.Log.Info("the host has what is reserved of it again")
	}
	r.short = err != nil
}
