package gc

import (
	"strings"

	"hostler.io/hostler/runtime"
)

// NormalReference completes a reference as registries and CRI write it: "nginx" becomes
// "docker.io/library/nginx:latest". A digest has precedence over a tag, as in a pull. The "sha256:"
// of an image ID is removed, because only some runtimes write it. The rules are those of
// github.com/distribution/reference.
func NormalReference(ref string) string {
	if id, found := strings.CutPrefix(ref, "sha256:"); found {
		return id
	}
	if isID(ref) {
		return ref
	}
	name, suffix := splitReference(ref)
	if suffix == "" {
		suffix = ":latest"
	}
	full := fullRepository(name)
	if len(full)+len(suffix) == len(ref) && strings.HasPrefix(ref, full) {
		return ref // fast path without allocation: most names have this form
	}
	return full + suffix
}

// splitReference splits a reference into its repository and ":tag" or "@digest". The second part
// may be empty.
func splitReference(ref string) (repository, suffix string) {
	digest := ""
	if at := strings.IndexByte(ref, '@'); at >= 0 {
		ref, digest = ref[:at], ref[at:]
	}
	if colon := strings.LastIndexByte(ref, ':'); colon > strings.LastIndexByte(ref, '/') {
		ref, suffix = ref[:colon], ref[colon:]
	}
	if digest != "" {
		suffix = digest
	}
	return ref, suffix
}

func fullRepository(name string) string {
	first, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "docker.io/library/" + name
	case first == "docker.io" && !strings.Contains(rest, "/"), first == "index.docker.io" && !strings.Contains(rest, "/"):
		return "docker.io/library/" + rest
	case first == "index.docker.io":
		return "docker.io/" + rest
	case isRegistry(first):
		return name
	}
	return "docker.io/" + name
}

func isRegistry(component string) bool {
	return strings.ContainsAny(component, ".:") || component == "localhost" || strings.ToLower(component) != component
}

// isID reports whether ref is an image ID without its algorithm, and not a name.
func isID(ref string) bool {
	if len(ref) != 64 {
		return false
	}
	for i := range len(ref) {
		if c := ref[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// imageRef is a reference to an image of one runtime.
type imageRef struct{ runtime, ref string }

// Users finds containers by the image they use. It uses the image ID that a container reports,
// because the name may refer to another image by now. The name counts only if there is no ID.
type Users map[imageRef][]*runtime.Container

func (u Users) add(c *runtime.Container) {
	ref := c.ImageID
	if ref == "" {
		ref = c.Image
	}
	if ref == "" {
		return
	}
	key := imageRef{c.Runtime, NormalReference(ref)}
	u[key] = append(u[key], c)
}

// Each calls use for every container of the image with these references. It may call it more than
// once for a container.
func (u Users) Each(runtimeName string, refs []string, use func(*runtime.Container)) {
	if len(u) == 0 {
		return
	}
	for _, ref := range refs {
		for _, c := range u[imageRef{runtimeName, ref}] {
			use(c)
		}
	}
}

// First returns the container that needs the image with these references most, and the number of
// others. A running container needs it most. It returns nil if there is none.
func (u Users) First(runtimeName string, refs []string) (first *runtime.Container, more int) {
	var seen map[*runtime.Container]bool
	u.Each(runtimeName, refs, func(c *runtime.Container) {
		switch {
		case first == nil:
			first, seen = c, map[*runtime.Container]bool{c: true}
			return
		case seen[c]:
			return
		}
		seen[c] = true
		more++
		if need(c.State) > need(first.State) {
			first = c
		}
	})
	return first, more
}

// need ranks containers by how much they need their image.
func need(s runtime.ContainerState) int {
	switch s {
	case runtime.Running:
		return 3
	case runtime.Unknown:
		return 2 // it may be running
	case runtime.Created:
		return 1
	}
	return 0
}

// References appends the normal form of the image's ID and of all its names.
func References(buf []string, img *runtime.Image) []string {
	buf = append(buf, NormalReference(img.ID))
	for _, name := range img.Tags {
		buf = append(buf, NormalReference(name))
	}
	for _, name := range img.Digests {
		buf = append(buf, NormalReference(name))
	}
	return buf
}

// UsersOf indexes all containers of the pods.
func UsersOf(pods []runtime.Pod) Users {
	u := make(Users)
	for i := range pods {
		for j := range pods[i].Containers {
			u.add(&pods[i].Containers[j])
		}
	}
	return u
}
