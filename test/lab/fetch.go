package lab

import (
	"context"
	"debug/elf"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Tool is a program of the lab.
type Tool struct {
	Path string
	// Libraries are the folders of a downloaded program's shared libraries, in the format of
	// LD_LIBRARY_PATH; empty for an installed program.
	Libraries string
}

// Environ returns the environment variables that the program needs.
func (t Tool) Environ() []string {
	if t.Libraries == "" {
		return nil
	}
	return []string{"LD_LIBRARY_PATH=" + t.Libraries}
}

// Tools are the programs and files of the lab, installed or downloaded. The fields of a kit that
// was not requested are empty. Each program has its own field.
type Tools struct {
	Containerd, Shim, Runc, Ctr Tool // KitContainers; the first also KitExt4; busybox is a static binary
	Mkfs, Busybox               Tool // KitContainers, the first KitExt4, too; busybox is a static binary

	Dockerd Tool // KitDocker
	Crun    Tool // KitCrun

	Podman, Conmon, Pause Tool   // KitPodman
	Seccomp               string // KitPodman: the seccomp profile of containers

	MkfsXFS, MkfsBtrfs Tool // KitFilesystems

	DBusDaemon, Logind Tool   // KitLogin
	Manager            Tool   // KitLogin: systemd itself
	Analyze            Tool   // KitLogin: systemd-analyze
	LoginPolicy        string // KitLogin: the bus policy of logind's package

	Bootstrap Tool // KitBootstrap: mmdebstrap
	Nspawn    Tool // KitNspawn: systemd-nspawn

	Prometheus, Promtool Tool // KitPrometheus
}

func (t *Tools) all() []*Tool {
	return []*Tool{
		&t.Containerd, &t.Shim, &t.Runc, &t.Ctr, &t.Mkfs, &t.Busybox, &t.Dockerd, &t.Crun, &t.Podman, &t.Conmon, &t.Pause, &t.MkfsXFS, &t.MkfsBtrfs, &t.DBusDaemon, &t.Logind, &t.Manager, &t.Analyze,
		&t.Bootstrap, &t.Nspawn, &t.Prometheus, &t.Promtool,
	}
}

// Kit is a group of tools that belong together.
type Kit string

// The kits.
const (
	KitContainers  Kit = "containers"  // containerd, its shim, runc, ctr, mkfs.ext4, busybox
	KitExt4        Kit = "ext4"        // only mkfs.ext4
	KitDocker      Kit = "docker"      // dockerd; needs KitContainers
	KitPodman      Kit = "podman"      // podman, conmon and catatonit; need KitContainers
	KitCrun        Kit = "crun"        // crun; its containers need KitContainers
	KitFilesystems Kit = "filesystems" // mkfs.xfs and mkfs.btrfs
	KitLogin       Kit = "login"       // dbus-daemon, systemd-logind, systemd itself and systemd-analyze
	KitBootstrap   Kit = "bootstrap"   // mmdebstrap
	KitNspawn      Kit = "nspawn"      // systemd-nspawn
	KitPrometheus  Kit = "prometheus"  // prometheus, promtool
)

// Kits returns all kits.
func Kits() []Kit {
	return []Kit{
		KitContainers, KitExt4, KitDocker, KitPodman, KitCrun, KitFilesystems, KitLogin, KitBootstrap, KitNspawn, KitPrometheus,
	}
}

// FetchOptions configure Fetch.
type FetchOptions struct {
	Kits []Kit // if nil, the kits of the lab itself: containers and login
	// Cache is the folder of unpacked packages. If empty, it is $HOSTLER_TEST_CACHE, or the folder
	// "hostler" in the user's cache folder.
	Cache string
	// Always downloads even installed programs. $HOSTLER_TEST_FETCH=always does the same.
	Always bool
}

// part is a file of a kit, with its paths in the packages and its field. The paths are tried in
// order, because they differ between Debian releases.
type part struct {
	paths []string
	put   func(t *Tools, path, libraries string)
	fits  func(path string) bool // if nil, any file
}

// kit has the packages and files of a kit.
type kit struct {
	packages []string
	parts    []part
}

func bin(name string, field func(*Tools) *Tool) part {
	return part{
		paths: []string{"usr/bin/" + name, "usr/sbin/" + name, "sbin/" + name, "bin/" + name, "usr/local/bin/" + name, "usr/local/sbin/" + name},
		put:   func(t *Tools, path, libraries string) { *field(t) = Tool{Path: path, Libraries: libraries} },
	}
}

func kitOf(name Kit) (kit, error) {
	switch name {
	case KitContainers:
		busybox := bin("busybox", func(t *Tools) *Tool { return &t.Busybox })
		busybox.fits = isStatic
		return kit{
			packages: []string{"containerd", "runc", "e2fsprogs", "busybox-static"},
			parts: []part{
				bin("containerd", func(t *Tools) *Tool { return &t.Containerd }),
				bin("containerd-shim-runc-v2", func(t *Tools) *Tool { return &t.Shim }),
				bin("runc", func(t *Tools) *Tool { return &t.Runc }),
				bin("ctr", func(t *Tools) *Tool { return &t.Ctr }),
				bin("mkfs.ext4", func(t *Tools) *Tool { return &t.Mkfs }),
				busybox,
			},
		}, nil
	case KitExt4:
		return kit{
			packages: []string{"e2fsprogs"},
			parts:    []part{bin("mkfs.ext4", func(t *Tools) *Tool { return &t.Mkfs })},
		}, nil
	case KitDocker:
		return kit{
			packages: []string{"docker.io"},
			parts:    []part{bin("dockerd", func(t *Tools) *Tool { return &t.Dockerd })},
		}, nil
	case KitPodman:
		return kit{
			packages: []string{"podman", "conmon", "catatonit", "golang-github-containers-common"},
			parts: []part{
				bin("podman", func(t *Tools) *Tool { return &t.Podman }),
				bin("conmon", func(t *Tools) *Tool { return &t.Conmon }),
				bin("catatonit", func(t *Tools) *Tool { return &t.Pause }),
				{
					paths: []string{"usr/share/containers/seccomp.json"},
					put:   func(t *Tools, path, _ string) { t.Seccomp = path },
				},
			},
		}, nil
	case KitCrun:
		return kit{
			packages: []string{"crun"},
			parts:    []part{bin("crun", func(t *Tools) *Tool { return &t.Crun })},
		}, nil
	case KitFilesystems:
		return kit{
			packages: []string{"xfsprogs", "btrfs-progs"},
			parts: []part{
				bin("mkfs.xfs", func(t *Tools) *Tool { return &t.MkfsXFS }),
				bin("mkfs.btrfs", func(t *Tools) *Tool { return &t.MkfsBtrfs }),
			},
		}, nil
	case KitLogin:
		return kit{
			packages: []string{"dbus-daemon", "systemd"},
			parts: []part{
				bin("dbus-daemon", func(t *Tools) *Tool { return &t.DBusDaemon }),
				bin("systemd-analyze", func(t *Tools) *Tool { return &t.Analyze }),
				{
					paths: []string{"usr/lib/systemd/systemd-logind", "lib/systemd/systemd-logind"},
					put:   func(t *Tools, path, libraries string) { t.Logind = Tool{Path: path, Libraries: libraries} },
				},
				{
					paths: []string{"usr/lib/systemd/systemd", "lib/systemd/systemd"},
					put:   func(t *Tools, path, libraries string) { t.Manager = Tool{Path: path, Libraries: libraries} },
				},
				{
					paths: []string{"usr/share/dbus-1/system.d/org.freedesktop.login1.conf", "etc/dbus-1/system.d/org.freedesktop.login1.conf"},
					put:   func(t *Tools, path, _ string) { t.LoginPolicy = path },
				},
			},
		}, nil
	case KitBootstrap:
		return kit{
			packages: []string{"mmdebstrap"},
			parts:    []part{bin("mmdebstrap", func(t *Tools) *Tool { return &t.Bootstrap })},
		}, nil
	case KitNspawn:
		return kit{
			packages: []string{"systemd-container"},
			parts:    []part{bin("systemd-nspawn", func(t *Tools) *Tool { return &t.Nspawn })},
		}, nil
	case KitPrometheus:
		return kit{
			packages: []string{"prometheus"},
			parts: []part{
				bin("prometheus", func(t *Tools) *Tool { return &t.Prometheus }),
				bin("promtool", func(t *Tools) *Tool { return &t.Promtool }),
			},
		}, nil
	}
	return kit{}, fmt.Errorf("unknown kit %q", name)
}

// Fetch returns the tools of the kits. If a kit is completely installed on the host, it returns the
// host's tools. Otherwise it returns tools from the cache, into which it downloads and unpacks
// missing packages. It installs nothing, and needs the network only the first time. Several
// processes may call it at the same time.
func Fetch(ctx context.Context, o FetchOptions, log *slog.Logger) (Tools, error) {
	if o.Cache == "" {
		dir, err := CacheDir()
		if err != nil {
			return Tools{}, err
		}
		o.Cache = dir
	}
	if o.Kits == nil {
		o.Kits = []Kit{KitContainers, KitLogin}
	}
	always := o.Always || os.Getenv("HOSTLER_TEST_FETCH") == "always"
	var tools Tools
	for _, name := range o.Kits {
		k, err := kitOf(name)
		if err != nil {
			return Tools{}, err
		}
		if !always && k.locate("/", "", &tools) == nil {
			continue
		}
		dir, err := cached(ctx, o.Cache, name, k, discard(log))
		if err != nil {
			return Tools{}, fmt.Errorf("fetch %s: %w", name, err)
		}
		if err := k.locate(dir, libraryPath(dir), &tools); err != nil {
			return Tools{}, fmt.Errorf("fetch %s: %w: remove %s to fetch it again", name, err, dir)
		}
	}
	return tools, nil
}

// locate sets the fields of the kit from a root folder, or returns the missing file.
func (k kit) locate(root, libraries string, t *Tools) error {
	for _, p := range k.parts {
		i := slices.IndexFunc(p.paths, func(rel string) bool {
			path := filepath.Join(root, rel)
			info, err := os.Stat(path)
			return err == nil && info.Mode().IsRegular() && (p.fits == nil || p.fits(path))
		})
		if i < 0 {
			return fmt.Errorf("no %s in %s", filepath.Base(p.paths[0]), root)
		}
		p.put(t, filepath.Join(root, p.paths[i]), libraries)
	}
	return nil
}

// CacheDir returns the folder for files that take long to get: $HOSTLER_TEST_CACHE, or the folder
// "hostler" in the user's cache folder.
func CacheDir() (string, error) {
	if dir := os.Getenv("HOSTLER_TEST_CACHE"); dir != "" {
		return dir, nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w: set HOSTLER_TEST_CACHE", err)
	}
	return filepath.Join(base, "hostler"), nil
}

// cached returns the folder with an unpacked kit, which it downloads if necessary.
func cached(ctx context.Context, cache string, name Kit, k kit, log *slog.Logger) (string, error) {
	dir := filepath.Join(cache, system(), string(name))
	return dir, MakeOnce(dir, func(temporary string) error {
		log.Info("fetching packages", "kit", string(name), "packages", strings.Join(k.packages, " "), "cache", dir)
		debs, err := os.MkdirTemp(filepath.Dir(dir), string(name)+".tmp")
		if err != nil {
			return err
		}
		defer os.RemoveAll(debs)
		return download(ctx, k.packages, debs, temporary)
	})
}

// Prepared is a variable that `make test` sets after test/prepare. It makes MakeOnce fail instead of
// building or fetching anything beside tests.
const Prepared = "HOSTLER_TEST_PREPARED"

// MakeOnce calls fill unless the folder dir exists. fill fills a temporary folder beside it, which
// is then renamed to dir. So dir is complete or does not exist. The lock only prevents two
// processes from doing the same work.
func MakeOnce(dir string, fill func(temporary string) error) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if os.Getenv(Prepared) != "" {
		return fmt.Errorf("%s does not exist, although everything is prepared: add it to test/prepare", dir)
	}
	// These are left from an interrupted run. Nothing uses them while the lock is held.
	stale, _ := filepath.Glob(dir + ".tmp*")
	for _, path := range stale {
		_ = os.RemoveAll(path)
	}
	temporary := dir + ".tmp"
	if err := os.Mkdir(temporary, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	if err := fill(temporary); err != nil {
		return err
	}
	return os.Rename(temporary, dir)
}

// system returns the release and the architecture of packages, so that several systems can share a
// cache folder.
func system() string {
	values := map[string]string{}
	if data, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				values[key] = strings.Trim(value, `"'`)
			}
		}
	}
	return strings.Trim(values["ID"]+"-"+values["VERSION_ID"], "-") + "-" + goruntime.GOARCH
}

// libraryPath lists the folders below root that have shared libraries.
func libraryPath(root string) string {
	var dirs []string
	for _, pattern := range []string{"usr/lib/*-linux-*", "lib/*-linux-*", "usr/lib/*-linux-*/systemd", "lib/*-linux-*/systemd", "usr/lib/systemd", "lib/systemd"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, dir := range found {
			if libs, _ := filepath.Glob(filepath.Join(dir, "lib*.so*")); len(libs) > 0 {
				dirs = append(dirs, dir)
			}
		}
	}
	return strings.Join(dirs, ":")
}

// isStatic reports whether a program needs no libraries in its image.
func isStatic(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	interpreted := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	return !interpreted && err == nil && len(libs) == 0
}
