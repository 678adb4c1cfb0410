//go:build integration

package etcd_test

import (
	"testing"

	bed "hostler.io/hostler/test/etcd"
)

func TestMain(m *testing.M) { bed.Main(m) }
