package local

import "path/filepath"

// VolumePaths returns the local paths from which a volume is mounted: a device or a folder in the
// options of Docker's and Podman's local driver. It returns none for a volume on another host.
func VolumePaths(driver string, options map[string]string) []string {
	if device := options["device"]; IsLocalVolume(driver) && filepath.IsAbs(device) {
		return []string{device}
	}
	return nil
}

// IsLocalVolume reports whether a volume belongs to the runtime's own driver. For other drivers the
// runtime calls a plugin, which may not answer.
func IsLocalVolume(driver string) bool { return driver == "local" || driver == "" }
