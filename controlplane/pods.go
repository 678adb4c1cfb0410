package controlplane

// StoredPod is a v1.Pod as a control plane stores it, for the objects of a host's pods.
type StoredPod struct {
	Path    string // NAMESPACE/NAME
	Value   []byte // JSON
	Version PodVersion
}

// PodVersion identifies one state of a StoredPod, as read or written over one connection. The zero
// value means that the object does not exist.
type PodVersion struct {
	Connection  int64
	Create, Mod int64 // revisions
}

// PodPage is a part of the list of a host's StoredPods, sorted by path.
type PodPage struct {
	Pods       []StoredPod
	Next       string // token of the next page; empty after the last
	Connection int64  // connection that the page was read over
}
