package pods

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/runtime"
)

// ofRuntimes are the runtimes whose pods have no namespace.
var ofRuntimes = [...]string{"docker", "podman", "runc", "crun"}

// names returns namespace and name of a pod's object. Without a namespace, it is the name of the
// runtime, so that pods of two runtimes do not share an object. Without a name, it is the ID. The
// name of a Compose project is mapped from its ID, so that it does not share an object with a
// container.
func names(p runtime.Pod) (namespace, name string) {
	namespace, name = cmp.Or(p.Namespace, p.Runtime), cmp.Or(p.Name, p.ID)
	if strings.HasPrefix(p.ID, runtime.ProjectPrefix) {
		name = p.ID
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 || slices.Contains(ofRuntimes[:], p.Namespace) {
		namespace = mapped(namespace, validation.DNS1123LabelMaxLength)
	}
	if len(validation.IsDNS1123Subdomain(name)) > 0 || p.Namespace == "" && looksMapped(name) {
		name = mapped(name, validation.DNS1123SubdomainMaxLength)
	}
	return namespace, name
}

// uidOf returns the UID of a pod's object. Runtimes and labels may have other texts, which are replaced by their hash.
func uidOf(p runtime.Pod) types.UID {
	uid := cmp.Or(p.UID, p.ID)
	if controlplane.ValidUID(uid) {
		return types.UID(uid)
	}
	sum := sha256.Sum256([]byte(uid))
	return types.UID(hex.EncodeToString(sum[:]))
}

// hashLength is the length of the hash at the end of a mapped name, in hexadecimal digits. Whoever
// creates a container or a project chooses its name, so the hash must have no collisions.
const hashLength = 32

// looksMapped reports whether a name could be the mapped one of another pod.
func looksMapped(name string) bool {
	hash := name[strings.LastIndexByte(name, '-')+1:]
	_, err := hex.DecodeString(hash)
	return len(hash) == hashLength && err == nil
}

// mapped returns a valid name for one that Kubernetes does not allow: in lowercase, with hyphens
// for other characters, and with a hash that distinguishes similar names.
func mapped(name string, most int) string {
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:])[:hashLength]
	valid := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	valid = strings.Trim(valid[:min(len(valid), most-hashLength-1)], "-")
	if valid == "" {
		return hash
	}
	return valid + "-" + hash
}
