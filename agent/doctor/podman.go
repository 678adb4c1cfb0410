package doctor

import (
	"fmt"
	"strings"
)

// podman reports Podman containers that hostler does not manage: the system's, if their Podman does not
// answer, and those of users (rootless).
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
