package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

const realRunc = "/usr/sbin/runc"

// immortalDir has a file for each container that no signal ends, by its ID.
const immortalDir = "/run/immortal"

// runc removes the limits from a container's bundle before the real runc reads it: without cgroup
// controllers, each of them would be an error. It does not kill the containers in immortalDir.
func runc(args []string) error {
	if i := slices.Index(args, "kill"); i >= 0 {
		for _, arg := range args[i:] {
			if _, err := os.Stat(filepath.Join(immortalDir, filepath.Base(arg))); err == nil && len(arg) == 64 {
				return nil
			}
		}
	}
	if slices.Contains(args, "create") || slices.Contains(args, "run") {
		bundle := "."
		if i := slices.Index(args, "--bundle"); i >= 0 && i+1 < len(args) {
			bundle = args[i+1]
		}
		if err := withoutLimits(filepath.Join(bundle, "config.json")); err != nil {
			return err
		}
	}
	return fmt.Errorf("run %s: %w", realRunc, unix.Exec(realRunc, args, os.Environ()))
}

func withoutLimits(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	linux, _ := spec["linux"].(map[string]any)
	resources, _ := linux["resources"].(map[string]any)
	if resources == nil {
		return nil
	}
	linux["resources"] = map[string]any{"devices": resources["devices"]}
	if data, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}
