// Package kube runs a real Kubernetes control plane for tests: etcd, kube-apiserver and, on
// request, kube-controller-manager, as processes of a lab. It has the authorization of a real
// cluster and its own certificate authority. It needs no container. On request, a kubelet runs on a
// containerd of the lab.
//
// The package owns the programs, their flags, and the credentials. It builds the programs from
// their modules, with the versions in build/go.mod, because there are no packages of them, and
// keeps them in the cache. It does not know hostler. It uses no client library of Kubernetes, so
// that a bug of the tested client cannot affect it.
//
// A test binary calls Main from its TestMain, and each test calls For:
//
//	c := kube.For(t, kube.Options{ControllerManager: true})
//	kubeconfig, err := c.NodeKubeconfig("machine-1")
//	...
//	c.Etcd.Pause() // writes hang
//
// To change the version, change it and the versions of the replaced modules in build/go.mod and
// ../upstream/build/go.mod. Then run `go mod tidy` in both.
package kube
