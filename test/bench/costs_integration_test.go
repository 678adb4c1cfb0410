//go:build integration

package bench_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/test/kube"
)

// The nodes whose load is measured.
const (
	hostlerNode = "with-hostler"
	kubeletNode = "with-kubelet"
)

// podSettling is longer than settling: kubelet checks each new pod again after up to a minute and a
// half, and writes the result.
const podSettling = 2 * time.Minute

// podManifest is a pod of one container that is bound to a node and needs nothing else, such as a
// token.
const podManifest = `---
apiVersion: v1
kind: Pod
metadata: {name: web-%d, namespace: default}
spec:
  nodeName: %s
  hostNetwork: true
  automountServiceAccountToken: false
  containers: [{name: main, image: "%s", imagePullPolicy: Never}]
`

// measureCosts counts the requests of hostler and kubelet while nothing happens, on hosts without
// pods and on full ones.
func (f *fleet) measureCosts(into *table) {
	ctx, cancel := context.WithCancel(f.b.Context())
	defer cancel()
	isReady := func(n *corev1.Node) bool { return ready(n).Status == corev1.ConditionTrue }
	oursReady, theirsReady := follow(ctx, f, "/api/v1/nodes", hostlerNode, isReady), follow(ctx, f, "/api/v1/nodes", kubeletNode, isReady)
	a := f.startHostler(true, hostlerNode, f.kubeconfig(hostlerNode))
	defer a.end(syscall.SIGTERM)
	k := newKubelet(f.b, f.cluster, f.theirs, kubeletNode)
	k.start(f.b)
	defer k.stop(f.b)
	f.await(oursReady, hostlerNode+" is Ready")
	f.await(theirsReady, kubeletNode+" is Ready")
	both := []*party{
		{name: "hostler", node: hostlerNode, process: a.process, promised: map[string]float64{"update leases": 6, "patch nodes/status": 0.2}},
		{name: "kubelet", node: kubeletNode, process: k.process},
	}
	time.Sleep(settling)
	f.measureWindow(into, "idle", both)

	f.furnish()
	a.await("the images are known", func(s api.Status) bool {
		return s.Shutdown.State == shutdown.Armed && s.ImageGC.Images == imageCount && s.ContainerGC.Containers >= podCount
	})
	time.Sleep(podSettling)
	f.measureWindow(into, fmt.Sprintf("%d pods, %d images", podCount, imageCount), both)
	f.kubectl("delete", "pod", "--all")
}

// furnish starts images and pods on both hosts: kubelet's pods are the cluster's.
func (f *fleet) furnish() {
	f.b.Helper()
	fillImages(f.b, f.ours)
	for i := range imageCount - 1 {
		_, err := f.theirs.Images.PullImage(f.b.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: imageName(i)}})
		check(f.b, err)
	}
	(&bed{b: f.b, containerd: f.ours}).runPods(podCount, critical)
	var pods strings.Builder
	for i := range podCount {
		fmt.Fprintf(&pods, podManifest, i, kubeletNode, imageName(i))
	}
	check(f.b, f.cluster.Apply(f.b.Context(), pods.String()))
	f.kubectl("wait", "pod", "--all", "--for=condition=Ready", "--timeout=5m")
}

// party is hostler or kubelet.
type party struct {
	name, node string
	process
	promised map[string]float64 // targets, by their subject

	// Measured in the last window.
	requests       map[string]float64 // by verb and resource
	asked          float64            // their sum
	anonymous, pss float64            // megabytes at the end of the window
	ran            float64            // processor seconds
}

// measureWindow measures both in a period in which nothing happens.
func (f *fleet) measureWindow(into *table, where string, both []*party) {
	began := time.Now()
	for _, p := range both {
		p.ran = p.processorSeconds()
	}
	time.Sleep(*window)
	ended := time.Now()
	for _, p := range both {
		p.ran = p.processorSeconds() - p.ran
	}
	all, err := f.cluster.Requests()
	check(f.b, err)
	for _, p := range both {
		p.count(slices.DeleteFunc(slices.Clone(all), func(r kube.Request) bool { return r.Time.Before(began) || !r.Time.Before(ended) }))
		p.report(into, where, ended.Sub(began).Minutes())
	}
	ours, theirs := both[0], both[1]
	for _, ratio := range []figure{
		{name: "requests", samples: []float64{theirs.asked / ours.asked}},
		{name: "anonymous memory", samples: []float64{theirs.anonymous / ours.anonymous}},
		{name: "PSS", samples: []float64{theirs.pss / ours.pss}},
		{name: "CPU", samples: []float64{theirs.ran / ours.ran}},
	} {
		ratio.name, ratio.unit = where+": "+ratio.name+", kubelet's of hostler's", "times"
		into.add(ratio)
	}
}

// count sorts its requests.
func (p *party) count(requests []kube.Request) {
	p.requests, p.asked = map[string]float64{}, 0
	for _, r := range requests {
		if r.User != kube.Node(p.node).Name {
			continue
		}
		kind := r.Verb + " " + strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
		if r.Code >= 400 {
			kind += fmt.Sprintf(", answered %d", r.Code)
		}
		p.requests[kind]++
		p.asked++
	}
}

// report adds the load of a window of that many minutes.
func (p *party) report(into *table, where string, minutes float64) {
	p.b.Helper()
	add := func(what, unit string, value float64) {
		into.add(figure{name: where + ", " + p.name + ": " + what, unit: unit, samples: []float64{value}, target: p.promised[what]})
	}
	add("requests", "a minute", p.asked/minutes)
	reads := 0.0
	for _, kind := range slices.Sorted(maps.Keys(p.requests)) {
		add(kind, "a minute", p.requests[kind]/minutes)
		if strings.HasPrefix(kind, "get ") || strings.HasPrefix(kind, "list ") {
			reads += p.requests[kind]
		}
	}
	into.add(figure{name: where + ", " + p.name + ": all reads", unit: "a minute", samples: []float64{reads / minutes}, never: p.promised != nil})
	memory := p.memory()
	p.anonymous, p.pss = memory["Anonymous"]/megabyte, memory["Pss"]/megabyte
	add("anonymous memory", "MB", p.anonymous)
	add("PSS", "MB", p.pss)
	add("CPU in a minute", "s", p.ran/minutes)
}
