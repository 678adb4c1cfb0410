package pods

import (
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/runtime"
)

// Read decodes a stored object.
func Read(o controlplane.StoredPod) (Stored, error) { return read(o) }

// Names returns namespace and name of a pod's object.
func Names(p runtime.Pod) (namespace, name string) { return names(p) }
