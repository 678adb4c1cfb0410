// Package kube runs a real Kubernetes control plane for tests: etcd,
// kube-apiserver and, where asked for, kube-controller-manager, as processes of
// a lab, with the authorization of a real fleet's and an own certificate
// authority. No container takes part; a kubelet does where a test asks for one, on a
// containerd of the lab.
//
// It owns the programs, which it builds from their modules with the versions in
// build/go.mod, since nobody packages them, and keeps in the cache; the flags they
// run with; and the credentials. It refuses to know hostler, and uses no client
// library of Kubernetes, so that the bed does not share the faults of what is
// tested on it.
//
// A test binary calls Main from its TestMain, and each test For:
//
//	c := kube.For(t, kube.Options{ControllerManager: true})
//	kubeconfig, err := c.NodeKubeconfig("machine-1")
//	...
//	c.Etcd.Pause() // writes hang
//
// To another version: change it and those of the replaced modules in
// build/go.mod and ../upstream/build/go.mod, then `go mod tidy` in both.
package kube
