// Package statefile keeps what the agent has learned in one folder, so that it survives
// restarts: one small file for each kind of state, replaced as a whole.
//
// The owner of a kind of state keeps it in memory and gives its File a function that returns
// a snapshot, which is called when it is time to write. Writes are behind, so that a
// heartbeat costs no fsync of its own. A crash of the host loses the last seconds, never a file.
//
// A state file is two lines of JSON: a header with the version of the format and the SHA-256
// checksum of all that follows, and the value. jq reads both. Values is a file of small
// values by key. Notes is the same as plain text without a header, for what nothing else
// records.
//
// The package refuses to be the reason why an agent does not run. A file that is damaged, or
// that a newer hostler has written, is set aside with a warning and starts empty. Where no
// file can be written, everything works from memory, and Health says so. Only a second agent
// on the same folder is an error, ErrLocked.
package statefile
