package podlogs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/internal/tree"
)

// dangling finds links to logs that do not exist. Links to anything but a pod's log are ignored.
func (h *Host) dangling(ctx context.Context, pods *tree.Dir) ([]gc.LogFact, error) {
	links, err := openTop(h.links)
	if err != nil || links == nil {
		return nil, err
	}
	defer links.Close()
	var found []gc.LogFact
	var errs []error
	for name, err := range links.Names() {
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return nil, err
		}
		if len(found)+len(errs) == h.found {
			break
		}
		log, leads, err := h.inspectLink(links, pods, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case leads:
			found = append(found, log)
		}
	}
	return found, errors.Join(errs...)
}

// inspectLink reports whether an entry is a link to a pod's log that does not exist.
func (h *Host) inspectLink(links, pods *tree.Dir, name string) (gc.LogFact, bool, error) {
	log := gc.LogFact{Path: filepath.Join(h.links, name), Link: true}
	base, isLog := strings.CutSuffix(name, ".log")
	cut := strings.LastIndexByte(base, '-')
	if !isLog || cut < 0 {
		return log, false, nil
	}
	st, err := links.Stat(name)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return log, false, err
	}
	target, err := links.Readlink(name)
	if err != nil {
		return log, false, err
	}
	below, isPods := strings.CutPrefix(path.Clean(target), podsFolder+"/")
	steps := strings.Split(below, "/")
	namespace, pod, uid, isPod := parseFolder(steps[0])
	if !isPods || !isPod || len(steps) != 3 || !logName.MatchString(steps[2]) {
		return log, false, nil
	}
	log.Namespace, log.Pod, log.UID, log.ContainerID = namespace, pod, uid, base[cut+1:]
	log.ModifiedAt = time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec))
	there, err := exists(pods, steps)
	return log, !there, err
}

// exists reports whether a container's log exists. It follows no links. If anything else is in its
// place, the log counts as existing.
func exists(pods *tree.Dir, steps []string) (bool, error) {
	folder := pods
	for i, name := range steps {
		st, err := folder.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil || i == len(steps)-1 || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return true, err
		}
		next, err := folder.Open(name)
		if err != nil {
			return true, err
		}
		defer next.Close()
		folder = next
	}
	return true, nil
}

func (h *Host) removeLink(pods *tree.Dir, log gc.LogFact) error {
	links, err := openTop(h.links)
	if err != nil || links == nil {
		return err
	}
	defer links.Close()
	name := filepath.Base(log.Path)
	if filepath.Join(h.links, name) != log.Path {
		return fmt.Errorf("it is not in %s", h.links)
	}
	now, leads, err := h.inspectLink(links, pods, name)
	switch {
	case err != nil:
		return err
	case !leads || now != log:
		return ErrChanged
	}
	return links.Remove(name, 0)
}
