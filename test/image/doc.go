// Package image builds the image of hostler server twice. It runs the image in a real containerd,
// as the image's user and with a read-only root filesystem.
package image
