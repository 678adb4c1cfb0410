package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
	"hostler.io/hostler/test/machine/job"
	"hostler.io/hostler/test/packages"
)

// preparedVariable passes the prepared files into the lab. Only outside the lab there are a network
// and a compiler.
const preparedVariable = "HOSTLER_MACHINE"

// Version is the version of hostler in machines.
const Version = "0.0.0-machine"

// prepared has the inputs of machines.
type prepared struct {
	Roots map[Release]debian.Root
	Built string // folder with the programs of all machines
	// Installed are the files of hostler's package, without its program.
	Installed debian.Files
	Dist      string // folder for the results of failures
	Tools     lab.Tools
	QEMU      debian.QEMU
}

// Main prepares machines, runs the tests of m, and exits with their code. A TestMain needs to call
// nothing else. programs are packages of this module. Tests copy them from Built into machines.
func Main(m *testing.M, programs ...string) {
	if err := enter(context.Background(), Releases(), false, programs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// enter prepares the releases and runs the calling program again inside a lab, where it returns
// nil. Outside the lab, it returns only errors of the preparation. All machines and their files end
// with the lab, however that ends.
func enter(ctx context.Context, releases []Release, terminal bool, programs []string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if os.Getenv(preparedVariable) == "" && os.Geteuid() == 0 {
		p, err := prepare(ctx, releases, programs, log)
		if err != nil {
			return err
		}
		state, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if err := os.Setenv(preparedVariable, string(state)); err != nil {
			return err
		}
	}
	l, err := lab.Enter(ctx, lab.Options{Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers}}, Log: log, Terminal: terminal})
	p, preparedErr := current()
	if err != nil && preparedErr == nil {
		return errors.Join(err, os.RemoveAll(p.Built))
	}
	if err := cmp.Or(err, preparedErr); err != nil {
		return err
	}
	// A folder in the lab's memory leaves nothing behind.
	built := Built("")
	entries, err := os.ReadDir(p.Built)
	if errors.Is(err, os.ErrNotExist) {
		return nil // this program was started by a program in the lab
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(built, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(p.Built, e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(built, e.Name()), data, 0o755); err != nil {
			return err
		}
	}
	if err := writeImages(l, p.Roots, built); err != nil {
		return err
	}
	return os.RemoveAll(p.Built)
}

// Built returns the path of a program of Main, by the last element of its package path.
func Built(program string) string { return filepath.Join(lab.Dir, "built", program) }

// current returns the prepared files, inside the lab.
func current() (prepared, error) {
	var p prepared
	if err := json.Unmarshal([]byte(os.Getenv(preparedVariable)), &p); err != nil {
		return p, errors.New("no machines here: call machine.Main from TestMain")
	}
	return p, nil
}

func prepare(ctx context.Context, releases []Release, programs []string, log *slog.Logger) (p prepared, err error) {
	gomod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return p, fmt.Errorf("find the module: %w", err)
	}
	module := filepath.Dir(strings.TrimSpace(string(gomod)))
	p.Dist = filepath.Join(module, "dist", "machine")
	if p.Installed, err = installed(module); err != nil {
		return p, err
	}
	if p.Tools, err = lab.Fetch(ctx, lab.FetchOptions{Kits: []lab.Kit{lab.KitNspawn}}, log); err != nil {
		return p, err
	}
	if p.QEMU, err = debian.PrepareQEMU(ctx, log); err != nil {
		return p, err
	}
	p.Roots = map[Release]debian.Root{}
	for _, release := range releases {
		if p.Roots[release], err = debian.Prepare(ctx, release, log); err != nil {
			return p, err
		}
	}
	if p.Built, err = os.MkdirTemp("", "hostler-machine-"); err != nil {
		return p, err
	}
	file := func(name string) string { return filepath.Join(p.Built, name) }
	err = errors.Join(
		lab.Build(ctx, "hostler.io/hostler", Version, file("hostler")),
		lab.Build(ctx, "hostler.io/hostler/test/machine/guest", "", file("guest")))
	for _, program := range programs {
		err = errors.Join(err, lab.Build(ctx, program, "", file(filepath.Base(program))))
	}
	if err == nil {
		err = writePackage(ctx, module, file(packageFile))
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(p.Built))
	}
	return p, err
}

const packageFile = "hostler.deb"

// writePackage builds hostler's package, as `make package` does.
func writePackage(ctx context.Context, module, to string) error {
	dir, err := os.MkdirTemp("", "hostler-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	made, err := packages.Build(ctx, module, dir, "022", "ARCHITECTURES="+goruntime.GOARCH)
	if err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(made, "hostler_*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("make package made %q, want one deb: %w", debs, err)
	}
	data, err := os.ReadFile(debs[0])
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// writeImages builds each release's image for sandboxes and containers.
func writeImages(l *lab.Lab, roots map[Release]debian.Root, dir string) error {
	for release, root := range roots {
		withBusybox := *l
		withBusybox.Tools.Busybox = lab.Tool{Path: root.Busybox}
		file, err := os.Create(filepath.Join(dir, imageFile(release)))
		if err != nil {
			return err
		}
		err = withBusybox.Archive(lab.ImageSpec{Names: []string{job.Image}}, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

func imageFile(r Release) string { return "image-" + string(r) + ".tar" }
