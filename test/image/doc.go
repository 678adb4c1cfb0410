// Package image makes the image of hostler server twice, and runs it in a real containerd, as the user
// that it names and with a root filesystem that is read-only.
package image
