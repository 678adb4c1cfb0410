//go:build integration

package garbagecollector_test

import (
	"testing"

	bed "hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/kube"
)

func TestMain(m *testing.M) { bed.Main(m, kube.APIServer, kube.Kubectl) }
