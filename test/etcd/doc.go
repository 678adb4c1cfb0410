// Package etcd runs real etcd clusters for tests: members as processes of a lab, alone
// or three, with TLS and auth as a fleet's have them, each behind a wall where a test
// is to cut it off, or on a disk of its own where that is to stall.
//
// It owns the flags that they run with, their certificates and users, and their faults:
// each member is a lab.Daemon, to be killed, hung and started again, and its disk can be
// frozen. Its tools are built from the versions in build/go.mod, etcd itself as package
// kube does. It refuses to know hostler, and asks etcd by nothing but etcdctl and
// etcdutl, so that the bed does not share the faults of what is tested on it.
//
// A test binary calls Main from its TestMain, and each test For:
//
//	c := etcd.For(t, etcd.Options{Members: 3, TLS: true})
//	user, err := c.Client("rack1-node1", time.Hour)
//	...
//	c.Members[0].Kill()
package etcd
