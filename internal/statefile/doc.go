// Package statefile keeps the agent's state in one folder, so that it survives restarts. Each kind
// of state has one small file, which is replaced as a whole.
//
// The owner of a kind of state keeps it in memory and gives its File a function that returns a
// snapshot. File calls the function when it is time to write. Writes are delayed, so that a
// heartbeat does not cost an fsync. A crash of the host loses the last seconds of changes, never a
// file.
//
// A state file is two lines of JSON, which jq can read. The first is a header with the format
// version and the SHA-256 checksum of the rest. The second is the value. Values is a file of small
// values by key. Notes is the same as plain text without a header, for values that are recorded
// nowhere else.
//
// An error of this package never stops the agent. A file that is damaged, or that a newer hostler
// wrote, is renamed with a warning, and its state starts empty. If no file can be written,
// everything works from memory, and Health reports that. Only a second agent on the same folder is
// an error, ErrLocked.
package statefile
