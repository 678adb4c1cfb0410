package etcd

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"hostler.io/hostler/controlplane/objects"
)

// version identifies one state of an object. Revisions alone do not: a restored backup uses them
// again for other states, and the restored cluster can have the same ID. So a version also has a
// digest of the value.
type version struct {
	cluster     uint64 // ID of the cluster
	create, mod int64  // revisions
	digest      uint64 // of the value
}

// versionFormat has as many verbs as a version has fields.
const versionFormat = "%016x-%d-%d-%016x"

// String returns the text of the version.
func (v version) String() string {
	return fmt.Sprintf(versionFormat, v.cluster, v.create, v.mod, v.digest)
}

// parseVersion parses the result of String; false for anything else.
func parseVersion(text objects.Version) (version, bool) {
	var v version
	if _, err := fmt.Sscanf(string(text), versionFormat, &v.cluster, &v.create, &v.mod, &v.digest); err != nil {
		return version{}, false
	}
	return v, v.String() == string(text)
}

// versionOf returns the version of a stored key.
func versionOf(cluster uint64, kv *mvccpb.KeyValue) version {
	return version{cluster: cluster, create: kv.CreateRevision, mod: kv.ModRevision, digest: digest(kv.Value)}
}

func digest(value []byte) uint64 {
	sum := sha256.Sum256(value)
	return binary.BigEndian.Uint64(sum[:8])
}
