package debian

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"hostler.io/hostler/test/lab"
)

// PrepareTree installs packages with their dependencies in a root of the release that cannot boot,
// unless the cache has it, and returns its folder, where nothing is changed. It needs the network
// only then. It is safe for concurrent use, even by several processes.
func PrepareTree(ctx context.Context, release Release, packages []string, log *slog.Logger) (string, error) {
	r, err := recipeFor(release)
	if err != nil {
		return "", err
	}
	return r.tree(ctx, "tree", packages, "minbase", log)
}

// PrepareDockerd returns the dockerd of Debian 13, which is newer than Debian 12's, in the same way
// as PrepareTree.
func PrepareDockerd(ctx context.Context, log *slog.Logger) (string, error) {
	tree, err := PrepareTree(ctx, Trixie, []string{"docker.io"}, log)
	return filepath.Join(tree, "usr/sbin/dockerd"), err
}

// PrepareRuntimes returns a root of Debian 13 with its container runtimes except Docker, which are
// newer than Debian 12's, in the same way as PrepareTree. lab.TreeFor runs them.
func PrepareRuntimes(ctx context.Context, log *slog.Logger) (string, error) {
	return PrepareTree(ctx, Trixie, []string{"containerd", "runc", "crun", "podman", "catatonit"}, log)
}

// PrepareRebooters returns a root of the release with packages that reboot hosts or run jobs, in the
// same way as PrepareTree.
func PrepareRebooters(ctx context.Context, release Release, log *slog.Logger) (string, error) {
	return PrepareTree(ctx, release, []string{"unattended-upgrades", "needrestart", "cron", "logrotate", "man-db"}, log)
}

// tree returns a folder with packages, in the cache under a name that begins with name.
func (r recipe) tree(ctx context.Context, name string, packages []string, variant string, log *slog.Logger) (string, error) {
	cache, err := lab.CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "machine", name+"-"+r.digest(packages))
	err = lab.MakeOnce(dir, func(temporary string) error {
		log.Info("fetching packages", "packages", packages, "release", string(r.release), "cache", dir)
		tools, err := lab.Fetch(ctx, lab.FetchOptions{Kits: []lab.Kit{lab.KitBootstrap}}, log)
		if err != nil {
			return err
		}
		return r.bootstrap(ctx, tools.Bootstrap, temporary, filepath.Join(temporary, "tree"), packages, "--variant="+variant)
	})
	if err != nil {
		return "", fmt.Errorf("fetch %s of Debian %s: %w", name, r.release, err)
	}
	return filepath.Join(dir, "tree"), nil
}
