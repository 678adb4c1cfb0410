package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
	"hostler.io/hostler/test/packages"
)

// quiet drops the messages of recipes: a part has one line.
var quiet = slog.New(slog.DiscardHandler)

// parts returns everything that tests need, what takes longest last.
func parts(flags []string) []part {
	var all []part
	for _, kit := range lab.Kits() {
		all = append(all, part{"tools: " + string(kit), func(ctx context.Context) error {
			_, err := lab.Fetch(ctx, lab.FetchOptions{Kits: []lab.Kit{kit}}, quiet)
			return err
		}})
	}
	all = append(all, roots()...)
	all = append(all, tools()...)
	for _, p := range kube.Programs() {
		all = append(all, part{"program: " + string(p), func(ctx context.Context) error { return kube.Prepare(ctx, quiet, p) }})
	}
	return append(all, compiled(flags)...)
}

// roots are the Debian roots.
func roots() []part {
	all := []part{
		{"Debian 13: QEMU", func(ctx context.Context) error { _, err := debian.PrepareQEMU(ctx, quiet); return err }},
		{"Debian 13: Docker", func(ctx context.Context) error { _, err := debian.PrepareDockerd(ctx, quiet); return err }},
		{"Debian 13: other runtimes", func(ctx context.Context) error { _, err := debian.PrepareRuntimes(ctx, quiet); return err }},
		{"Debian 13: tools that check packages", func(ctx context.Context) error { _, err := packages.PrepareTree(ctx, quiet); return err }},
	}
	for _, release := range debian.Releases() {
		all = append(all,
			part{fmt.Sprintf("Debian %s: what reboots hosts", release), func(ctx context.Context) error {
				_, err := debian.PrepareRebooters(ctx, release, quiet)
				return err
			}},
			part{fmt.Sprintf("Debian %s: a root that boots", release), func(ctx context.Context) error {
				_, err := debian.Prepare(ctx, release, quiet)
				return err
			}})
	}
	return all
}

// tools are the programs that `go tool` runs, by their module.
func tools() []part {
	var all []part
	for _, t := range []struct{ module, name string }{
		{"test/tools", "gotestsum"},
		{"packaging/tools", "nfpm"},
		{"", "protoc-gen-go"},
		{"", "protoc-gen-go-grpc"},
		{"", "gofumpt"},
		{"", "pprof"},
	} {
		args := []string{"tool", "-n", t.name} // builds it, and prints its path
		if t.module != "" {
			args = []string{"tool", "-modfile=" + t.module + "/go.mod", "-n", t.name}
		}
		all = append(all, part{"program: " + t.name, goCommand(nil, args...)})
	}
	return all
}

// compiled are the packages of programs and tests. Nothing is linked: go does not keep what it links.
func compiled(flags []string) []part {
	var all []part
	static := slices.Concat([]string{"list", "-export"}, lab.BuildFlags())
	for _, arch := range []string{"amd64", "arm64"} {
		all = append(all, part{"compiled: hostler for " + arch, goCommand([]string{"CGO_ENABLED=0", "GOARCH=" + arch}, slices.Concat(static, []string{"."})...)})
	}
	programs := []string{"./packaging/made/write", "./test/machine/guest", "./test/lab/unit/spawn", "./docs/examples/plugin-https", "./test/httpstore/serve"}
	return append(all,
		part{"compiled: programs of tests", goCommand([]string{"CGO_ENABLED=0"}, slices.Concat(static, programs)...)},
		part{"compiled: what writes images", goCommand([]string{"CGO_ENABLED=0"}, slices.Concat([]string{"list", "-C", "packaging/image", "-export"}, lab.BuildFlags(), []string{"."})...)},
		part{"compiled: tests", goCommand(nil, slices.Concat([]string{"list", "-test", "-export"}, flags, []string{"./..."})...)})
}

// goCommand returns a run of the go command.
func goCommand(environ []string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(lab.BuildEnviron(), environ...)
		var complaint strings.Builder
		cmd.Stderr = &complaint
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, lab.LastLines(complaint.String(), 20))
		}
		return nil
	}
}
