package kube_test

import (
	"os"
	"regexp"
	"testing"
)

// TestAllProgramsAreOfOneKubernetes compares the modules that programs are built from.
func TestAllProgramsAreOfOneKubernetes(t *testing.T) {
	versions := func(file string) map[string]string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, match := range regexp.MustCompile(`(?m)^(?:require )?\s*(k8s\.io/kubernetes|k8s\.io/\S+ => k8s\.io/\S+) (v\S+)`).FindAllSubmatch(text, -1) {
			found[string(match[1])] = string(match[2])
		}
		return found
	}
	want := versions("build/go.mod")
	if want["k8s.io/kubernetes"] == "" || len(want) < 20 {
		t.Fatalf("build/go.mod names %v, want Kubernetes and its staged modules", want)
	}
	for module, version := range versions("../upstream/build/go.mod") {
		if version != want[module] {
			t.Errorf("../upstream/build/go.mod has %s %s, build/go.mod has %q", module, version, want[module])
		}
	}
}
