package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/rebooters"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/systemd"
)

// Sources is where Gather finds facts.
type Sources struct {
	Logind  *systemd.Logind
	Manager *systemd.Manager
	// Root is the root directory of the host's files: "/".
	Root string
	// Proc is the proc file system of the host: "/proc".
	Proc string
	// Files reads files that users own.
	Files *bounded.Files
}

// bound is how long Gather may take, because a person waits for the answer. Facts that systemd reported
// by then count, even if others are missing.
const bound = 5 * time.Second

// Gather adds facts about logind, systemd, a kubelet and what reboots the host. It queries them
// concurrently, and changes nothing on the host.
func (s Sources) Gather(ctx context.Context, f *Facts) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { f.Logind = s.logind(ctx) })
	wg.Go(func() { f.Systemd = s.systemd(ctx, f.StopFirst, &f.Reboots) })
	found := owner.FindKubelets(s.Proc)
	others, late := s.rebooters().Find(ctx)
	wg.Wait()
	f.Reboots.Others = append(others, f.Reboots.Others...)
	f.Reboots.Err = errors.Join(f.Reboots.Err, late)
	kubelet := Kubelet{Evidence: found.Evidence(), Refused: found.Refused, Lock: found.Lock(s.Proc, f.Logind.Locks)}
	if kubelet.Evidence != "" {
		kubelet.readConfig(s.Root)
	}
	f.Kubelet = kubelet
}

func (s Sources) rebooters() rebooters.Host {
	return rebooters.Host{Root: s.Root, Proc: s.Proc, Files: s.Files}
}

func (s Sources) logind(ctx context.Context) Logind {
	l := Logind{Files: s.Logind.Files(), Held: s.Logind.Held(), WriteHint: s.Logind.WriteHint()}
	var err error
	if l.Granted, err = s.Logind.MaxDelay(ctx); err == nil {
		l.Locks, err = s.Logind.ListInhibitors(ctx)
	}
	if err == nil {
		l.Scheduled, l.Begins, _ = s.Logind.Scheduled(ctx) // for information only
	}
	if errors.Is(err, systemd.ErrNoBus) {
		l.Bus = err
	} else {
		l.Login = err
	}
	l.Own = s.Logind.Own(l.Locks)
	return l
}

func (s Sources) systemd(ctx context.Context, first []string, reboots *Reboots) Systemd {
	r := Systemd{DropIns: map[string]string{}, WrongDropIns: map[string]string{}}
	var patterns []string
	for _, prefix := range scopePrefixes() {
		patterns = append(patterns, prefix+"-*.scope")
		switch path, orders := findScopeDropIn(s.Root, prefix); {
		case path == "":
		case orders:
			r.DropIns[prefix] = path
		default:
			r.WrongDropIns[prefix] = path
		}
	}
	names := []string{Service, logindService, "ctrl-alt-del.target", "reboot.target", "poweroff.target", "halt.target", "kexec.target", "shutdown.target"}
	targets := len(names)
	for _, name := range slices.Concat(orchestrators(), first) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if hasServerUnit(s.Root) { // systemd takes time for each unit
		names = append(names, ServerService)
	}
	var units []systemd.Unit
	err := s.Manager.Ask(ctx, func(ctx context.Context, talk *systemd.Talk) {
		var queries sync.WaitGroup
		queries.Go(func() { units = talk.Units(ctx, names...) })
		queries.Go(func() { r.Run, r.RunErr = talk.Run(ctx, Service) })
		queries.Go(func() { r.Scopes, r.ScopesErr = talk.Scopes(ctx, Service, patterns...) })
		queries.Wait()
		if reboots.Enabled { // last: the other facts matter more
			reboots.Others, reboots.Err = s.rebooters().FindUnits(ctx, talk)
		}
	})
	if err == nil {
		r.Service, r.Login, r.CtrlAltDel = units[0], units[1], units[2]
		if last := len(units) - 1; units[last].Name == ServerService {
			r.Server, units = units[last], units[:last]
		}
		r.Targets, r.Orchestrators = units[3:targets], units[targets:]
		reported := func(u systemd.Unit) bool { return u.Err == nil }
		if !slices.ContainsFunc(units, reported) && r.RunErr != nil {
			err = r.Service.Err
		}
	}
	r.Missing = errors.Is(err, systemd.ErrNotSystemd)
	if err != nil {
		reboots.Err = err
		r.Problem = reason(err)
	}
	return r
}

// reason is why systemd has not reported something.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v (is the host busy?)", bound)
	}
	return err.Error()
}

// ScopeDropIn is the path of an administrator's drop-in that orders the scopes of a prefix.
func ScopeDropIn(prefix string) string {
	return filepath.Join("/etc/systemd/system", prefix+"-.scope.d", "10-hostler.conf")
}

// unitFolders lists where systemd finds units, the first one first (systemd.unit(5)).
func unitFolders() []string { return []string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"} }

// hasServerUnit reports whether the unit file of the server exists.
func hasServerUnit(root string) bool {
	return slices.ContainsFunc(unitFolders(), func(folder string) bool {
		_, err := os.Lstat(filepath.Join(root, folder, "systemd/system", ServerService))
		return err == nil
	})
}

// findScopeDropIn finds the drop-in that systemd uses (systemd.unit(5)). It hides drop-ins of that name
// in later folders, even if it does not order the scopes: it may be a mask.
func findScopeDropIn(root, prefix string) (path string, orders bool) {
	for _, folder := range unitFolders() {
		path := filepath.Join(folder, "systemd/system", prefix+"-.scope.d", "10-hostler.conf")
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			continue
		}
		if !info.Mode().IsRegular() {
			return path, false
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		return path, err == nil && ordersScopes(string(text))
	}
	return "", false
}

// ordersScopes reports whether a drop-in names hostler's unit in Before=.
func ordersScopes(text string) bool {
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(line, "=")
		if found && strings.TrimSpace(name) == "Before" && slices.Contains(strings.Fields(value), Service) {
			return true
		}
	}
	return false
}

// kubeletConfig is the kubelet's configuration file with kubeadm and on distributions.
const kubeletConfig = "/var/lib/kubelet/config.yaml"

// readConfig reads the kubelet's shutdown settings from its usual configuration file.
func (k *Kubelet) readConfig(root string) {
	text, err := os.ReadFile(filepath.Join(root, kubeletConfig))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	k.Config = kubeletConfig
	var c struct {
		ShutdownGracePeriod              metav1.Duration `json:"shutdownGracePeriod"`
		ShutdownGracePeriodByPodPriority []struct {
			ShutdownGracePeriodSeconds int64 `json:"shutdownGracePeriodSeconds"`
		} `json:"shutdownGracePeriodByPodPriority"`
	}
	if err == nil {
		err = yaml.Unmarshal(text, &c)
	}
	if err != nil {
		k.Fault = fmt.Sprintf("read %s: %v", kubeletConfig, err)
		return
	}
	k.Grace = c.ShutdownGracePeriod.Duration
	for _, p := range c.ShutdownGracePeriodByPodPriority {
		k.Grace += time.Duration(p.ShutdownGracePeriodSeconds) * time.Second
	}
}

// CheckState reports whether hostler's state directory is writable, and its free space. It does not
// write.
func CheckState(path string) State {
	s := State{Path: path}
	var space unix.Statfs_t
	if err := unix.Statfs(existing(path), &space); err == nil && space.Blocks > 0 {
		s.Free, s.Measured = space.Bavail*uint64(space.Bsize), true
	}
	err := unix.Access(path, unix.W_OK)
	if errors.Is(err, unix.ENOENT) { // the first start creates it
		err = unix.Access(existing(path), unix.W_OK)
	}
	if err != nil {
		s.Problem = (&fs.PathError{Op: "write into", Path: path, Err: err}).Error()
	}
	if errors.Is(err, unix.EROFS) {
		s.Problem += "; if the file system is not read-only, the service is restricted: see `systemctl cat hostler`, and remove ReadOnlyPaths= of the directory, or add ReadWritePaths=-" + path
	}
	return s
}

// existing is the path itself if it exists, or else its nearest parent that does.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}
