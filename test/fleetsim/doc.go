// Package fleetsim simulates a fleet: the real controllers of several servers and the real loops of
// several hosts share one store in memory, in a synctest bubble. Faults are drawn from a seed, and a
// ground truth that knows who really lives checks every write.
//
// Each request to the store, each answer and each event of a watch waits until the driver releases it.
// The driver releases one at a time, after all goroutines have come to rest. When each is released, and
// what happens to it, depends only on the plan and on its name: process, function, call, object and
// count. So a run is replayed by its plan.
package fleetsim
