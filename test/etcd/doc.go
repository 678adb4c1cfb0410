// Package etcd runs real etcd clusters for tests: one or three members as processes of a lab, with
// TLS and auth as in a real fleet. A test can cut a member off the network, or block its disk.
//
// It owns the flags, the certificates and users, and the faults of members. Each member is a
// lab.Daemon that can be killed, paused and started again. etcd and its tools are built from the
// versions in build/go.mod. The package does not know hostler. It uses only etcdctl and etcdutl, so
// that a bug of the tested client cannot affect it.
//
// A test binary calls Main from its TestMain, and each test calls For:
//
//	c := etcd.For(t, etcd.Options{Members: 3, TLS: true})
//	user, err := c.Client("rack1-node1", time.Hour)
//	...
//	c.Members[0].Kill()
package etcd
