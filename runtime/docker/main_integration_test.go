//go:build integration

package docker_test

import (
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
)

func TestMain(m *testing.M) {
	lab.Main(m, lab.Options{
		Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers, lab.KitDocker}},
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}
