package doctor

import (
	"fmt"
	"strings"
)

// podman tells of containers that nobody looks after: the host's own, whose Podman cannot
// be asked, and those of users.
func podman(f Facts) Check {
	var users string
	if list := f.Runtimes.PodmanUsers; len(list) > 0 {
		users = fmt.Sprintf("containers of users' own Podmans are left alone: systemd stops them with all that is the users' (user IDs %s)", strings.Join(list, ", "))
	}
	switch socket := f.Runtimes.PodmanUnheard; {
	case socket != "":
		if users != "" {
			users = "; " + users
		}
		return warn("systemctl enable --now podman.socket, if hostler is to look after them",
			"there are containers of Podman's, and nobody listens at %s: hostler cannot look after them, and they are not stopped in order%s", socket, users)
	case users != "":
		return ok("%s", users)
	}
	return Check{}
}
