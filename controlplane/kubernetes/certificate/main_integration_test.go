//go:build integration

package certificate_test

import (
	"testing"

	"hostler.io/hostler/test/kube"
)

func TestMain(m *testing.M) { kube.Main(m, kube.ControllerManager) }
