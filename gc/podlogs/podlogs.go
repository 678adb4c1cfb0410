// Package podlogs finds and removes what the pods of CRI runtimes leave below /var/log: a folder of
// logs for each pod, and links to the log of each container.
//
// It owns their layout, which kubelet defines. /var/log/pods has folders NAMESPACE_NAME_UID. Each
// has a folder for each container, with files N.log and their rotated copies. /var/log/containers
// has links that end in -ID.log. Package gc decides what is removed. This package follows no link
// or mount, and does not change a folder with other content.
package podlogs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/internal/tree"
)

// Paths of logs, as in kubelet and CRI runtimes.
const (
	podsFolder  = "/var/log/pods"
	linksFolder = "/var/log/containers"
)

const (
	// mostFound is the maximum number of folders, or of links, in memory: some 10 MB.
	mostFound = 10_000
	// mostFiles is the maximum number of files and folders in a pod's folder. Containers have a few
	// each. A folder with more has content of another program.
	mostFiles = 10_000
)

// ErrChanged means that a log was written to, or created again, since it was found.
var ErrChanged = errors.New("it changed since it was found")

// Host reads and removes the logs below a root folder. It is safe for concurrent use.
type Host struct {
	pods, links string

	found int // mostFound
	files int // mostFiles
}

// New returns the logs below root, which is / on a host.
func New(root string) *Host {
	return &Host{pods: filepath.Join(root, podsFolder), links: filepath.Join(root, linksFolder), found: mostFound, files: mostFiles}
}

// Find returns log folders of pods with an unknown UID, and links to missing logs: at most
// mostFound of each. The next collection finds the others. If the log folders do not exist, there
// are no logs. If reading fails in part, it returns the rest with the error.
func (h *Host) Find(ctx context.Context, known func(uid string) bool) ([]gc.LogFact, error) {
	pods, err := openTop(h.pods)
	if err != nil || pods == nil {
		return nil, err
	}
	defer pods.Close()
	var found []gc.LogFact
	var errs []error
	for name, err := range pods.Names() {
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return nil, err
		}
		namespace, pod, uid, ok := parseFolder(name)
		if !ok || known(uid) {
			continue
		}
		if len(found)+len(errs) == h.found {
			break
		}
		log, _, err := h.inspect(pods, name)
		switch {
		case tree.Gone(err):
			continue // or it is not a folder
		case err != nil:
			errs = append(errs, err)
			continue
		}
		log.Namespace, log.Pod, log.UID = namespace, pod, uid
		found = append(found, log)
	}
	links, err := h.dangling(ctx, pods)
	return append(found, links...), errors.Join(append(errs, err)...)
}

// Remove removes a folder or a link that Find found. If it has changed since, the error is
// ErrChanged. If it no longer exists, there is no error.
func (h *Host) Remove(ctx context.Context, log gc.LogFact) error {
	err := h.remove(ctx, log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("log %s: %w", log.Path, err)
	}
	return nil
}

func (h *Host) remove(ctx context.Context, log gc.LogFact) error {
	pods, err := openTop(h.pods)
	if err != nil || pods == nil {
		return err
	}
	defer pods.Close()
	if log.Link {
		return h.removeLink(pods, log)
	}
	name := filepath.Base(log.Path)
	if filepath.Join(h.pods, name) != log.Path {
		return fmt.Errorf("it is not in %s", h.pods)
	}
	now, contents, err := h.inspect(pods, name)
	switch {
	case err != nil:
		return err
	case now.Foreign != "" || !now.ModifiedAt.Equal(log.ModifiedAt) || now.SizeBytes != log.SizeBytes:
		return ErrChanged
	}
	folder, err := pods.Open(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	for _, c := range contents {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := removeContainer(folder, c); err != nil {
			return err
		}
	}
	return pods.Remove(name, unix.AT_REMOVEDIR)
}

// removeContainer removes only the files that inspect found.
func removeContainer(folder *tree.Dir, c container) error {
	logs, err := folder.Open(c.name)
	if err != nil {
		return err
	}
	defer logs.Close()
	for _, file := range c.files {
		if err := logs.Remove(file, 0); err != nil {
			return err
		}
	}
	return folder.Remove(c.name, unix.AT_REMOVEDIR)
}

// container is the folder of one container's logs.
type container struct {
	name  string
	files []string
}

// logName matches the name of a log, of a rotated one, or of one during compression.
var logName = regexp.MustCompile(`^[0-9]+\.log(\.[0-9A-Za-z.-]+)?$`)

// inspect reads a pod's folder.
func (h *Host) inspect(pods *tree.Dir, name string) (gc.LogFact, []container, error) {
	log := gc.LogFact{Path: filepath.Join(h.pods, name)}
	folder, err := pods.Open(name)
	if err != nil {
		return log, nil, err
	}
	defer folder.Close()
	if apart(pods.Self, folder.Self) {
		log.Foreign = "it is a mount point"
		return log, nil, nil
	}
	touch(&log, folder.Self)
	var contents []container
	left := h.files
	for name, err := range folder.Names() {
		if err != nil {
			return log, nil, err
		}
		st, err := folder.Stat(name)
		left--
		switch {
		case err != nil:
			return log, nil, err
		case left < 0:
			log.Foreign = tooMany
			return log, nil, nil
		case st.Mode&unix.S_IFMT != unix.S_IFDIR:
			log.Foreign = "it contains " + name + ", which is not a container's log folder"
			return log, nil, nil
		case apart(folder.Self, st):
			log.Foreign = "it contains " + name + ", which is a mount point"
			return log, nil, nil
		}
		touch(&log, st)
		files, err := inspectContainer(folder, name, &log, &left)
		if err != nil || log.Foreign != "" {
			return log, nil, err
		}
		contents = append(contents, container{name, files})
	}
	return log, contents, nil
}

// tooMany is why a folder with more than mostFiles is kept.
const tooMany = "it contains more files and folders than logs have"

// inspectContainer reads the folder of a container's logs, of at most left files.
func inspectContainer(folder *tree.Dir, name string, log *gc.LogFact, left *int) ([]string, error) {
	logs, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer logs.Close()
	var files []string
	for file, err := range logs.Names() {
		if err != nil {
			return nil, err
		}
		st, err := logs.Stat(file)
		if err != nil {
			return nil, err
		}
		if *left--; *left < 0 {
			log.Foreign = tooMany
			return nil, nil
		}
		// With cri-dockerd, a log is a link to Docker's own log file.
		kind := st.Mode & unix.S_IFMT
		switch {
		case !logName.MatchString(file) || kind != unix.S_IFREG && kind != unix.S_IFLNK:
			log.Foreign = "it contains " + name + "/" + file + ", which is not a log"
			return nil, nil
		case apart(logs.Self, st):
			log.Foreign = "it contains " + name + "/" + file + ", which is a mount point"
			return nil, nil
		}
		touch(log, st)
		if kind == unix.S_IFREG {
			log.SizeBytes += st.Size
		}
		files = append(files, file)
	}
	return files, nil
}

// touch updates the time of the last write to the log.
func touch(log *gc.LogFact, st unix.Statx_t) {
	if t := time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec)); t.After(log.ModifiedAt) {
		log.ModifiedAt = t
	}
}

// parseFolder splits a folder's name. The parts cannot contain an underscore.
func parseFolder(name string) (namespace, pod, uid string, ok bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}

// openTop opens one of the two folders, or returns nil if it does not exist. The folder itself may
// be a link, for example if logs are on another disk.
func openTop(path string) (*tree.Dir, error) {
	top, err := tree.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find logs: %w", err)
	}
	return top, nil
}
