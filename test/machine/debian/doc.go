// Package debian makes Debian releases ready to boot: a root with its kernel and
// its initramfs, built once from the host's own package sources and kept in the
// cache. It owns what is in a root, and how a machine's own files come over one;
// it refuses to boot machines.
package debian
