package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/test/lab"
)

// Program is a program that this package builds.
type Program string

// The programs. Every cluster needs the first three.
const (
	Etcd              Program = "etcd"
	APIServer         Program = "kube-apiserver"
	Kubectl           Program = "kubectl"
	ControllerManager Program = "kube-controller-manager"
	Kubelet           Program = "kubelet"

	Etcdctl Program = "etcdctl"
	Etcdutl Program = "etcdutl"

	Scheduler Program = "kube-scheduler"
	Kubemark  Program = "kubemark" // simulated kubelets
	Suite     Program = "suite"    // the node tests of Kubernetes' e2e suite
)

func (p Program) pkg() string {
	switch p {
	case Etcd:
		return "go.etcd.io/etcd/server/v3"
	case Etcdctl, Etcdutl:
		return "go.etcd.io/etcd/" + string(p) + "/v3"
	case Suite:
		return "./suite"
	}
	return "k8s.io/kubernetes/cmd/" + string(p)
}

// Programs returns the programs of all tests except test/upstream.
func Programs() []Program {
	return []Program{Etcd, Etcdctl, Etcdutl, APIServer, Kubectl, ControllerManager, Kubelet}
}

// bed returns the folder of the test bed whose build/go.mod has the program. etcd with its tools, and
// the programs of test/upstream, have their own module, so that their requirements do not cause a
// rebuild of Kubernetes.
func (p Program) bed() string {
	switch p {
	case Etcd, Etcdctl, Etcdutl:
		return "etcd"
	case Scheduler, Kubemark, Suite:
		return "upstream"
	}
	return "kube"
}

// Prepare builds the programs that are not in the cache yet. The first time takes minutes. Call it
// outside the lab, where modules can be downloaded. Several processes may call it at the same time.
func Prepare(ctx context.Context, log *slog.Logger, programs ...Program) error {
	for _, p := range programs {
		b, err := newBuilder(ctx, log, p.bed())
		if err != nil {
			return err
		}
		if _, err := b.path(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// Path returns the path of a program, and builds it if necessary.
func (p Program) Path(ctx context.Context) (string, error) {
	b, err := newBuilder(ctx, nil, p.bed())
	if err != nil {
		return "", err
	}
	return b.path(ctx, p)
}

// builder builds programs of one version.
type builder struct {
	module string // folder of the module that names the versions
	cache  string // folder for the results of that module, this compiler and these flags
	flags  []string
	log    *slog.Logger
}

func newBuilder(ctx context.Context, log *slog.Logger, bed string) (builder, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cache, err := lab.CacheDir()
	if err != nil {
		return builder{}, err
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD", "GOVERSION", "GOARCH").Output()
	if err != nil {
		return builder{}, fmt.Errorf("find the module: %w", err)
	}
	gomod, compiler, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	b := builder{module: filepath.Join(filepath.Dir(gomod), "test", bed, "build"), log: log}
	versions, err := os.ReadFile(filepath.Join(b.module, "go.mod"))
	sums, sumsErr := os.ReadFile(filepath.Join(b.module, "go.sum"))
	if err := errors.Join(err, sumsErr); err != nil {
		return builder{}, err
	}
	// Programs of the module itself also depend on its sources.
	sources, err := filepath.Glob(filepath.Join(b.module, "*", "*.go"))
	if err != nil {
		return builder{}, err
	}
	ldflags := "-s -w"
	if bed != "etcd" {
		stamp, err := kubernetesVersion(versions)
		if err != nil {
			return builder{}, fmt.Errorf("read %s/go.mod: %w", b.module, err)
		}
		ldflags += stamp
	}
	b.flags = []string{"-trimpath", "-buildvcs=false", "-p", "2", "-ldflags", ldflags}
	hash := sha256.New()
	parts := []string{string(versions), string(sums), compiler, strings.Join(b.flags, " ")}
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			return builder{}, err
		}
		parts = append(parts, string(text))
	}
	for _, part := range parts {
		// A hash accepts all writes.
		_, _ = io.WriteString(hash, part+"\x00")
	}
	b.cache = filepath.Join(cache, bed, hex.EncodeToString(hash.Sum(nil))[:16])
	return b, nil
}

// kubernetesVersion returns the flags that set the version in Kubernetes' programs.
func kubernetesVersion(gomod []byte) (string, error) {
	match := regexp.MustCompile(`(?m)^(?:require)?\s+k8s\.io/kubernetes v(\d+)\.(\d+)(\.\S+)`).FindSubmatch(gomod)
	if match == nil {
		return "", errors.New("it requires no k8s.io/kubernetes")
	}
	major, minor, rest := string(match[1]), string(match[2]), string(match[3])
	const version = "k8s.io/component-base/version."
	return fmt.Sprintf(" -X %[1]sgitVersion=v%[2]s.%[3]s%[4]s -X %[1]sgitMajor=%[2]s -X %[1]sgitMinor=%[3]s -X %[1]sgitTreeState=clean", version, major, minor, rest), nil
}

// path returns the path of the program in the cache, and builds it if necessary.
func (b builder) path(ctx context.Context, p Program) (string, error) {
	dir := filepath.Join(b.cache, string(p))
	err := lab.MakeOnce(dir, func(temporary string) error {
		unlock, err := b.lock()
		if err != nil {
			return err
		}
		defer unlock()
		b.log.Info("building, which takes minutes the first time", "program", string(p), "cache", dir)
		begin := time.Now()
		args := append(append([]string{"build"}, b.flags...), "-o", filepath.Join(temporary, string(p)), p.pkg())
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = b.module
		cmd.Env = append(lab.BuildEnviron(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s\ninside a lab nothing can be downloaded: call kube.Prepare before it is entered", p, err, lab.LastLines(string(out), 20))
		}
		b.log.Info("built", "program", string(p), "took", time.Since(begin).Round(time.Second))
		return nil
	})
	return filepath.Join(dir, string(p)), err
}

// lock makes builds run one after another: the programs share most packages, and two builds at once
// would compile them twice.
func (b builder) lock() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(b.cache, "build.lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
