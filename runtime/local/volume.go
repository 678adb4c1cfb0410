package local

import (
	"encoding/hex"
	"path/filepath"
)

// mostAnonymous bounds the volumes without a name that are inspected. An image declares any number
// of them, and none with a device.
const mostAnonymous = 100

// Anonymous counts a container's volumes that have no name of their own.
type Anonymous int

// Inspect reports whether to inspect a volume. The runtimes name an anonymous volume with 64
// hexadecimal digits.
func (a *Anonymous) Inspect(driver, name string) bool {
	if name == "" || !isLocalVolume(driver) {
		return false
	}
	if _, err := hex.DecodeString(name); len(name) != 64 || err != nil {
		return true
	}
	*a++
	return *a <= mostAnonymous
}

// VolumePaths returns the local paths from which a volume is mounted: a device or a folder in the
// options of Docker's and Podman's local driver. It returns none for a volume on another host.
func VolumePaths(driver string, options map[string]string) []string {
	if device := options["device"]; isLocalVolume(driver) && filepath.IsAbs(device) {
		return []string{device}
	}
	return nil
}

// isLocalVolume reports whether a volume belongs to the runtime's own driver. For other drivers the
// runtime calls a plugin, which may not answer.
func isLocalVolume(driver string) bool { return driver == "local" || driver == "" }
