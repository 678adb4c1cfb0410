package local

import "path/filepath"

// VolumePaths returns what a volume is mounted from, of the options that Docker and Podman give
// their local driver: a device, or a folder that is bound. What is on another host is no path.
func VolumePaths(driver string, options map[string]string) []string {
	if device := options["device"]; (driver == "local" || driver == "") && filepath.IsAbs(device) {
		return []string{device}
	}
	return nil
}
