package doctor

import "strings"

// notStarted names the containers that were not started after the boot, despite their restart policy.
func notStarted(f Facts) Check {
	if len(f.Runtimes.NotStarted) == 0 {
		return Check{}
	}
	return warn("start each container with `docker start NAME` or `podman start NAME`: the error shows the reason. To keep one stopped, set its restart policy to \"no\"",
		"not started since boot, despite their restart policy: %s", strings.Join(f.Runtimes.NotStarted, ", "))
}
