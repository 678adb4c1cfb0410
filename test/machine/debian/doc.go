// Package debian prepares Debian releases for booting: a root with kernel and initramfs, built once
// from the package sources of the host, and cached. It owns the content of a root, and how a
// machine's files are added to it. It does not boot machines.
package debian
