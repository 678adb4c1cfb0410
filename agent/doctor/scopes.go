package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// scopePrefixes has the prefixes of container scopes, by runtime. Runtimes that use scopes only with a
// flag have the flag in their key.
func scopePrefixes() map[string]string {
	return map[string]string{
		"containerd": "cri-containerd", "cri-o": "crio", "crio": "crio", "docker": "docker", "cri-dockerd": "docker", "podman": "libpod",
		"runc --systemd-cgroup": "runc", "crun --systemd-cgroup": "crun",
	}
}

// scopes checks that, in a shutdown without logind notification, systemd stops containers only after
// hostler has drained them.
func scopes(f Facts) Check {
	if f.Systemd.Missing || f.Systemd.Problem != "" {
		return Check{}
	}
	var found faults
	seen := map[string]bool{}
	unordered := func(prefix, whose string) {
		if prefix == "" || seen[prefix] || f.Systemd.DropIns[prefix] != "" {
			return
		}
		seen[prefix] = true
		found.add(f.Systemd.unordered(prefix, whose))
	}
	for _, r := range f.Runtimes.List {
		unordered(scopePrefixes()[r.Name], r.Name)
	}
	var early []string
	for _, name := range slices.Sorted(maps.Keys(f.Systemd.Scopes)) {
		if f.Systemd.Scopes[name] {
			continue
		}
		prefix, _, _ := strings.Cut(name, "-")
		if strings.HasPrefix(name, "cri-containerd-") {
			prefix = "cri-containerd"
		}
		unordered(prefix, prefix)
		if !seen[prefix] {
			early = append(early, name)
		}
	}
	if len(early) > 0 {
		found.add(warn("systemctl daemon-reload", "%d of %d container scopes, such as %s, are not ordered before %s: systemd has not read the drop-in",
			len(early), len(f.Systemd.Scopes), early[0], Service))
	}
	if err := f.Systemd.ScopesErr; err != nil {
		return found.or(unknown("whether all container scopes are ordered before "+Service, err))
	}
	return found.or(ok("also in a shutdown without logind notification, containers run until hostler has stopped their pods"))
}

// unordered is the fault that no drop-in orders the scopes of a prefix.
func (s Systemd) unordered(prefix, whose string) Check {
	message := fmt.Sprintf("the scopes of %s are not ordered: in a shutdown without logind notification, systemd stops these containers at once", whose)
	hint := fmt.Sprintf("install the package, or write \"[Unit]\" and \"Before=%s\" into %s", Service, ScopeDropIn(prefix))
	if wrong := s.WrongDropIns[prefix]; wrong != "" {
		message += fmt.Sprintf("; %s does not say Before=%s", wrong, Service)
		if !strings.HasPrefix(wrong, "/usr/lib/") && !strings.HasPrefix(wrong, "/lib/") { // those are the package's
			hint = "rm " + wrong
		}
	}
	return warn(hint+"; then systemctl daemon-reload", "%s", message)
}
