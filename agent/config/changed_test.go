package config_test

import (
	"slices"
	"testing"

	"hostler.io/hostler/agent/config"
)

func TestChanged(t *testing.T) {
	tests := []struct {
		name          string
		before, after func(*config.Config)
		want          []string
	}{
		{"nothing", func(*config.Config) {}, func(*config.Config) {}, nil},
		{
			"an empty list is no change to none",
			func(c *config.Config) { c.ImageGC.Keep = nil }, func(c *config.Config) { c.ImageGC.Keep = []string{} }, nil,
		},
		{
			"two annotations that read like one",
			func(c *config.Config) { c.Node.Annotations = map[string]string{"a": "1 b:2"} },
			func(c *config.Config) { c.Node.Annotations = map[string]string{"a": "1", "b": "2"} }, []string{"node.annotations"},
		},
		{
			"fields by their whole path, runtimes as a whole",
			func(*config.Config) {},
			func(c *config.Config) {
				c.Node.Reserved.CPU = "1"
				c.Runtimes = config.Runtimes{List: []config.Runtime{{Type: "cri", Endpoint: "/x.sock"}}}
			}, []string{"node.reserved.cpu", "runtimes"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, after := config.Default(), config.Default()
			tt.before(&before)
			tt.after(&after)
			if got := config.Changed(before, after); !slices.Equal(got, tt.want) {
				t.Errorf("Changed() = %v, want %v", got, tt.want)
			}
		})
	}
}
