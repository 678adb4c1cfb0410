//go:build integration

package kubernetes_test

import (
	"testing"

	"hostler.io/hostler/test/kube"
)

func TestMain(m *testing.M) { kube.Main(m, kube.ControllerManager) }
