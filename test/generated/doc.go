// Package generated generates the Go code of hostler's protocol, and fails if the committed code
// differs from it. It needs no protoc: the compiler is a library, and its two plugins are tools of
// the module.
package generated
