package doctor

import (
	"fmt"
	"strings"
)

// podman reports containers that nobody starts or stops: the host's own, whose Podman cannot
// be asked, and those of users.
func podman(f Facts) Check {
	var users string
	if list := f.Runtimes.PodmanUsers; len(list) > 0 {
		users = fmt.Sprintf("rootless Podman containers are not managed: systemd stops them with the user sessions (user IDs %s)", strings.Join(list, ", "))
	}
	switch socket := f.Runtimes.PodmanUnreachable; {
	case socket != "":
		if users != "" {
			users = "; " + users
		}
		return warn("run `systemctl enable --now podman.socket` if hostler should manage them",
			"Podman containers exist, but nothing listens at %s: hostler cannot manage them, and they are not stopped in order%s", socket, users)
	case users != "":
		return ok("%s", users)
	}
	return Check{}
}
