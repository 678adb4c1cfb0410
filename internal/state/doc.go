// Package state keeps what the agent has learned in one bbolt file, so that it
// survives restarts: last-used times of images, the Node, Lease and Events of
// the embedded control plane. It hands out narrow stores, one Bucket for each
// owner, and knows nothing of what they keep. The few values that nothing else tells, and
// that must be there also where that file is not, such as a person's word, are Notes: text
// in a file of their own.
//
// Writes go to memory first and to the file in batches, so that a heartbeat
// costs no fsync of its own. What the file holds is always a whole batch, synced:
// a crash of the host loses the last seconds, never the file.
//
// The package refuses to be the reason why an agent does not run. A file that is
// damaged, or comes from a newer hostler, is set aside with a warning and
// replaced by an empty one; where no file can be written, everything works from
// memory, and Health says so. Only a second agent on the same file is an error,
// ErrLocked.
package state
