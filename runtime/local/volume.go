package local

import "path/filepath"

// VolumePaths returns what a volume is mounted from, of the options that Docker and Podman give
// their local driver: a device, or a folder that is bound. What is on another host is no path.
func VolumePaths(driver string, options map[string]string) []string {
	if device := options["device"]; IsLocalVolume(driver) && filepath.IsAbs(device) {
		return []string{device}
	}
	return nil
}

// IsLocalVolume reports whether a volume is of the runtime's own driver, and not of a plugin, which
// the runtime asks about the volume and which may not answer.
func IsLocalVolume(driver string) bool { return driver == "local" || driver == "" }
