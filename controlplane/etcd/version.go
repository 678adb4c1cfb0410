package etcd

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"hostler.io/hostler/controlplane/objects"
)

// version is what tells one state of an object from another. Revisions alone do not:
// in a restored backup they go back and are given to other states again, and the
// restored cluster may have the ID of the one before. So it has a digest of the value,
// too.
type version struct {
	cluster     uint64 // ID of the cluster
	create, mod int64  // revisions
	digest      uint64 // of the value
}

// versionFormat has as many verbs as a version has fields.
const versionFormat = "%016x-%d-%d-%016x"

// String is how it is told.
func (v version) String() string {
	return fmt.Sprintf(versionFormat, v.cluster, v.create, v.mod, v.digest)
}

// parseVersion reads what String has told. It is false for anything else.
func parseVersion(text objects.Version) (version, bool) {
	var v version
	if _, err := fmt.Sscanf(string(text), versionFormat, &v.cluster, &v.create, &v.mod, &v.digest); err != nil {
		return version{}, false
	}
	return v, v.String() == string(text)
}

// versionOf is the version of what a cluster has stored.
func versionOf(cluster uint64, kv *mvccpb.KeyValue) version {
	return version{cluster: cluster, create: kv.CreateRevision, mod: kv.ModRevision, digest: digest(kv.Value)}
}

func digest(value []byte) uint64 {
	sum := sha256.Sum256(value)
	return binary.BigEndian.Uint64(sum[:8])
}
