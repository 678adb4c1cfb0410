// Package podlogs finds and removes what the pods of CRI runtimes leave below
// /var/log: a folder of logs for each pod, and links to the log of each container.
//
// It owns their layout, which kubelet gave them: /var/log/pods holds folders
// NAMESPACE_NAME_UID, these a folder for each container, and these files N.log with
// their rotated copies; /var/log/containers holds links that end in -ID.log. It
// refuses to decide what goes, which is gc's, to follow any link or mount, and to
// touch a folder that holds anything else.
package podlogs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc"
)

// Where logs are, as kubelet and CRI runtimes have it.
const (
	podsFolder  = "/var/log/pods"
	linksFolder = "/var/log/containers"
)

// ErrChanged tells that a log is not as it was found: somebody writes to it, or made
// it anew.
var ErrChanged = errors.New("it has changed since it was found")

// Host is the logs below a root folder. It is safe for concurrent use.
type Host struct{ pods, links string }

// New is the logs below root, which is / on a host.
func New(root string) *Host {
	return &Host{pods: filepath.Join(root, podsFolder), links: filepath.Join(root, linksFolder)}
}

// Find returns the log folders of pods whose UID is not known, and the links to
// logs that are not there. Where there are no such folders there are no logs. The
// error comes with what could be read.
func (h *Host) Find(ctx context.Context, known func(uid string) bool) ([]gc.LogFact, error) {
	pods, err := openTop(h.pods)
	if err != nil || pods == nil {
		return nil, err
	}
	defer pods.Close()
	names, err := pods.names()
	if err != nil {
		return nil, err
	}
	var found []gc.LogFact
	var errs []error
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		namespace, pod, uid, ok := parseFolder(name)
		if !ok || known(uid) {
			continue
		}
		log, _, err := h.inspect(pods, name)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
			continue // gone meanwhile, or no folder at all
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

// Remove removes a folder or a link that Find found, if it is still as it was;
// ErrChanged if it is not. One that is gone is no error.
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
	folder, err := pods.open(name)
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
	return pods.unlink(name, unix.AT_REMOVEDIR)
}

// removeContainer takes away the files that were seen, and no others.
func removeContainer(folder *dir, c container) error {
	logs, err := folder.open(c.name)
	if err != nil {
		return err
	}
	defer logs.Close()
	for _, file := range c.files {
		if err := logs.unlink(file, 0); err != nil {
			return err
		}
	}
	return folder.unlink(c.name, unix.AT_REMOVEDIR)
}

// container is the folder of one container's logs.
type container struct {
	name  string
	files []string
}

// logName is the name of a log, of a rotated one, or of one being compressed.
var logName = regexp.MustCompile(`^[0-9]+\.log(\.[0-9A-Za-z.-]+)?$`)

// inspect reads a pod's folder.
func (h *Host) inspect(pods *dir, name string) (gc.LogFact, []container, error) {
	log := gc.LogFact{Path: filepath.Join(h.pods, name)}
	folder, err := pods.open(name)
	if err != nil {
		return log, nil, err
	}
	defer folder.Close()
	if pods.mount(folder.self) {
		log.Foreign = "it is a mount point"
		return log, nil, nil
	}
	touch(&log, folder.self)
	names, err := folder.names()
	if err != nil {
		return log, nil, err
	}
	var contents []container
	for _, name := range names {
		st, err := folder.stat(name)
		switch {
		case err != nil:
			return log, nil, err
		case st.Mode&unix.S_IFMT != unix.S_IFDIR:
			log.Foreign = "it holds " + name + ", which is not the folder of a container's logs"
			return log, nil, nil
		case folder.mount(st):
			log.Foreign = "it holds " + name + ", which is a mount point"
			return log, nil, nil
		}
		touch(&log, st)
		files, err := inspectContainer(folder, name, &log)
		if err != nil || log.Foreign != "" {
			return log, nil, err
		}
		contents = append(contents, container{name, files})
	}
	return log, contents, nil
}

func inspectContainer(folder *dir, name string, log *gc.LogFact) ([]string, error) {
	logs, err := folder.open(name)
	if err != nil {
		return nil, err
	}
	defer logs.Close()
	files, err := logs.names()
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		st, err := logs.stat(file)
		if err != nil {
			return nil, err
		}
		// With cri-dockerd a log is a link to where Docker keeps it.
		kind := st.Mode & unix.S_IFMT
		switch {
		case !logName.MatchString(file) || kind != unix.S_IFREG && kind != unix.S_IFLNK:
			log.Foreign = "it holds " + name + "/" + file + ", which is no log"
			return nil, nil
		case logs.mount(st):
			log.Foreign = "it holds " + name + "/" + file + ", which is a mount point"
			return nil, nil
		}
		touch(log, st)
		if kind == unix.S_IFREG {
			log.SizeBytes += st.Size
		}
	}
	return files, nil
}

// touch notes when something of the log was written last.
func touch(log *gc.LogFact, st unix.Statx_t) {
	if t := time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec)); t.After(log.ModifiedAt) {
		log.ModifiedAt = t
	}
}

// parseFolder takes a folder's name apart. Neither part can hold an underscore.
func parseFolder(name string) (namespace, pod, uid string, ok bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}

// openTop opens one of the two folders, or returns nil if there is none. The folder
// itself may be a link, as where logs are kept on another disk.
func openTop(path string) (*dir, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for logs: %w", err)
	}
	return newDir(f)
}
