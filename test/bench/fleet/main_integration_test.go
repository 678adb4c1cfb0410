//go:build integration

package fleet_test

import (
	"testing"

	"hostler.io/hostler/test/kube"
)

func TestMain(m *testing.M) { kube.Main(m, kube.Etcdctl, kube.Etcdutl) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
