// Package generated makes the Go of hostler's protocol, and fails where what is checked
// in is not what the protocol says. It needs no protoc: the compiler is a library, and
// its two plugins are tools of the module.
package generated
