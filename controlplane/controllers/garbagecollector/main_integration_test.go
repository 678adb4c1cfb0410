//go:build integration

package garbagecollector_test

import (
	"testing"

	bed "hostler.io/hostler/test/etcd"
)

func TestMain(m *testing.M) { bed.Main(m) }
