//go:build integration

package lab_test

import (
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
)

func TestMain(m *testing.M) {
	lab.Main(m, lab.Options{
		Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers, lab.KitDocker, lab.KitLogin}},
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}
