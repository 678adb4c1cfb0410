// Package inspect looks at a host, also without an agent: the facts that doctor judges, how
// the last shutdown went, whether a configuration fits the host, what a killed agent left
// behind, and whether the control plane keeps its promises.
//
// It owns where each fact is read. It does not judge the facts, which package doctor does,
// and changes nothing but what TakeBack and Verifier say.
package inspect
