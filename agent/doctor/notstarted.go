package doctor

import "strings"

// notStarted names containers that should run and that nobody started after the boot.
func notStarted(f Facts) Check {
	if len(f.Runtimes.NotStarted) == 0 {
		return Check{}
	}
	return warn("start each container, as with `docker start NAME` or `podman start NAME`: the error says why it does not start; a container that is to stay down needs restart policy \"no\"",
		"not started since the boot, although their restart policy asks for it: %s", strings.Join(f.Runtimes.NotStarted, ", "))
}
