// Command shell gives a person a shell in a throwaway Debian with hostler
// installed: `make machine`.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"

	"hostler.io/hostler/test/machine"
)

func main() {
	release := flag.String("release", string(machine.Debian12), "Debian `release`: 12 or 13")
	bed := flag.String("bed", string(machine.Container), "what it runs on: vm or container")
	config := flag.String("config", "", "a `file` to be its hostler.yaml")
	systemd := flag.Bool("systemd-cgroup", false, "containers' cgroups are made by systemd")
	flag.Parse()
	o := machine.Options{Release: machine.Release(*release), Bed: machine.Bed(*bed), SystemdCgroup: *systemd}
	if err := run(o, *config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(o machine.Options, config string) error {
	if config != "" {
		data, err := os.ReadFile(config)
		if err != nil {
			return err
		}
		o.Config = string(data)
	}
	o.Files = machine.DockerFiles(o)
	maps.Copy(o.Files, machine.PodmanFiles())
	return machine.Shell(context.Background(), o)
}
