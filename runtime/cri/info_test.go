package cri_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

func TestInfoQueriesOncePerConnection(t *testing.T) {
	s := newServer(t, containerd16)
	r := s.client(t, nil)
	info, err := r.Info(t.Context())
	want := runtime.Info{
		Name: "containerd", Version: "1.6.20~ds1", Endpoint: "unix://" + s.socket,
		Ready: true, NetworkReady: true, SandboxImage: "registry.k8s.io/pause:3.6",
	}
	if err != nil || info != want {
		t.Errorf("Info() = %+v, %v, want %+v", info, err, want)
	}
	if got, want := s.count(), map[string]int{"Version": 1, "Status": 1}; !maps.Equal(got, want) {
		t.Errorf("first Info() made calls %v, want %v", got, want)
	}
	if again, err := r.Info(t.Context()); err != nil || again != want {
		t.Errorf("second Info() = %+v, %v, want %+v", again, err, want)
	}
	if got, want := s.count(), map[string]int{"Status": 1}; !maps.Equal(got, want) {
		t.Errorf("second Info() made calls %v, want %v", got, want)
	}

	// After a restart, another runtime may serve the socket.
	s.grpc.Stop()
	s.version, s.config = "1.7.27", `{"sandboxImage":"registry.k8s.io/pause:3.10"}`
	s.serve(t)
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for info, err = r.Info(t.Context()); err != nil && deadline.Err() == nil; {
		info, err = r.Info(t.Context())
	}
	if err != nil || info.Version != "1.7.27" || info.SandboxImage != "registry.k8s.io/pause:3.10" {
		t.Errorf("Info() after a restart = %+v, %v, want version 1.7.27 and pause:3.10", info, err)
	}
	s.count()
	if _, err := r.Info(t.Context()); err != nil {
		t.Errorf("Info() = %v", err)
	}
	if got, want := s.count(), map[string]int{"Status": 1}; !maps.Equal(got, want) {
		t.Errorf("second Info() after a restart made calls %v, want %v", got, want)
	}
}

func TestSandboxImage(t *testing.T) {
	for name, c := range map[string]struct{ config, want string }{
		"as containerd reports it":   {containerd16.config, "registry.k8s.io/pause:3.6"},
		"as CRI-O reports it":        {`{"sandboxImage":"registry.k8s.io/pause:3.9"}`, "registry.k8s.io/pause:3.9"},
		"none reported":              {`{"containerd":{}}`, ""},
		"no configuration":           {``, ""},
		"a configuration of its own": {`sandboxImage = "x"`, ""},
		"from Docker Hub's library":  {`{"sandboxImage":"busybox"}`, "docker.io/library/busybox:latest"},
		"from Docker Hub":            {`{"sandboxImage":"rancher/mirrored-pause:3.6"}`, "docker.io/rancher/mirrored-pause:3.6"},
		"Hub's library, half named":  {`{"sandboxImage":"docker.io/busybox:1"}`, "docker.io/library/busybox:1"},
		"from localhost":             {`{"sandboxImage":"localhost/pause"}`, "localhost/pause:latest"},
		"from a port":                {`{"sandboxImage":"mirror:5000/pause"}`, "mirror:5000/pause:latest"},
		"with tag and digest":        {`{"sandboxImage":"k8s.gcr.io/pause:3@sha256:ab"}`, "k8s.gcr.io/pause@sha256:ab"},
		"with a digest":              {`{"sandboxImage":"k8s.gcr.io/pause@sha256:ab"}`, "k8s.gcr.io/pause@sha256:ab"},
	} {
		t.Run(name, func(t *testing.T) {
			f := containerd16
			f.config = c.config
			info, err := newServer(t, f).client(t, nil).Info(t.Context())
			if err != nil || info.SandboxImage != c.want {
				t.Errorf("Info() = sandbox image %q, %v, want %q", info.SandboxImage, err, c.want)
			}
		})
	}
}

// containerd 2 does not report the sandbox image, but every sandbox reports its own.
func TestSandboxImageInUse(t *testing.T) {
	id := "sha256:" + strings.Repeat("ab", 32)
	for name, c := range map[string]struct{ sandbox, want string }{
		"by its name":  {`{"pid":1,"image":"registry.k8s.io/pause:3.10"}`, "registry.k8s.io/pause:3.10"},
		"by its ID":    {`{"image":"` + id + `"}`, id},
		"not reported": {`{"pid":1}`, ""},
		"not readable": {`?`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, flavour{name: "containerd", version: "2.1.0", config: `{}`, sandboxInfo: c.sandbox, nativeEvents: true})
			if info, err := s.client(t, nil).Info(t.Context()); err != nil || info.SandboxImage != "" {
				t.Errorf("Info() without a pod = sandbox image %q, %v, want none", info.SandboxImage, err)
			}
			s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"docker.io/library/a:1"}})
			s.fake.RunPod(runtimetest.PodSpec{Name: "horse", Containers: []runtimetest.ContainerSpec{{Name: "a", Image: "docker.io/library/a:1"}}})
			if info, err := s.client(t, nil).Info(t.Context()); err != nil || info.SandboxImage != c.want {
				t.Errorf("Info() = sandbox image %q, %v, want %q", info.SandboxImage, err, c.want)
			}
		})
	}
}

func TestReadiness(t *testing.T) {
	condition := func(kind string, ok bool, reason, message string) *criapi.RuntimeCondition {
		return &criapi.RuntimeCondition{Type: kind, Status: ok, Reason: reason, Message: message}
	}
	network := condition(criapi.NetworkReady, true, "", "")
	for name, c := range map[string]struct {
		conditions []*criapi.RuntimeCondition
		ready      bool
		message    string
		network    bool
		netMessage string
	}{
		"all well": {
			[]*criapi.RuntimeCondition{condition(criapi.RuntimeReady, true, "", ""), network}, true, "", true, "",
		},
		"not ready, and why": {
			[]*criapi.RuntimeCondition{condition(criapi.RuntimeReady, false, "Broken", "shim lost"), network},
			false, "Broken: shim lost", true, "",
		},
		"no network": {
			[]*criapi.RuntimeCondition{
				condition(criapi.RuntimeReady, true, "", ""),
				condition(criapi.NetworkReady, false, "NetworkPluginNotReady", "cni plugin not initialized"),
			}, true, "", false, "NetworkPluginNotReady: cni plugin not initialized",
		},
		"ready, with a warning": {
			[]*criapi.RuntimeCondition{
				condition(criapi.RuntimeReady, true, "", ""), network,
				condition("ContainerdHasNoDeprecationWarnings", false, "ContainerdHasDeprecationWarnings", `{"a":"b"}`),
			}, true, `ContainerdHasDeprecationWarnings: {"a":"b"}`, true, "",
		},
		"no condition at all": {nil, false, "RuntimeReady", false, "NetworkReady"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, containerd16)
			s.set(func() {
				s.answer = func(_ string, resp any) {
					if r, ok := resp.(*criapi.StatusResponse); ok {
						r.Status.Conditions = c.conditions
					}
				}
			})
			i, err := s.client(t, nil).Info(t.Context())
			if err != nil || i.Ready != c.ready || i.NetworkReady != c.network ||
				!strings.Contains(i.Message, c.message) || (i.Message == "") != (c.message == "") ||
				!strings.Contains(i.NetworkMessage, c.netMessage) || (i.NetworkMessage == "") != (c.netMessage == "") {
				t.Errorf("Info() = %+v, %v, want ready %t %q, network %t %q", i, err, c.ready, c.message, c.network, c.netMessage)
			}
		})
	}
}
