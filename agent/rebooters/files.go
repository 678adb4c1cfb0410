package rebooters

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/trust"
)

// mostFiles bounds how many files of a folder are read.
const mostFiles = 200

// readTimeout is how long the read of one file may take.
const readTimeout = time.Second

// search is one search of a host.
type search struct {
	Host
	read func(path string) string // the text of a file of up to 1 MiB; empty if it cannot be read
	late error                    // a *bounded.LateError of the first file that was not read in time
}

// search returns a search that ends with ctx. Users own some of the files, such as their cron jobs'
// scripts, or their file systems.
func (h Host) search(ctx context.Context) *search {
	s := &search{Host: h}
	s.read = func(path string) string {
		ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, fmt.Errorf("no answer within %v", readTimeout))
		defer cancel()
		text, err := h.Files.Read(ctx, filepath.Join(h.Root, path), trust.ReadUntrusted)
		if _, late := errors.AsType[*bounded.LateError](err); late && s.late == nil {
			s.late = err
		}
		return string(text)
	}
	return s
}

// script returns the text of a shell script; empty if the file is no shell script.
func (s *search) script(path string) string {
	if path == "" {
		return ""
	}
	text := s.read(path)
	if !shebang.MatchString(text) {
		return ""
	}
	return text
}

var shebang = regexp.MustCompile(`^#![^\n]*[/ ](ba|da|k|z)?sh\b`)

func (s *search) exists(path string) bool {
	_, err := os.Stat(filepath.Join(s.Root, path))
	return err == nil
}

// files lists the files in folders with a suffix, ordered by name. A file in a later folder hides files
// of the same name in earlier ones. Hidden files, and backups of editors and package managers, are left
// out.
func (s *search) files(suffix string, folders ...string) (paths []string) {
	byName := map[string]string{}
	for _, folder := range folders {
		entries, _ := os.ReadDir(filepath.Join(s.Root, folder))
		for _, e := range entries[:min(len(entries), mostFiles)] {
			if name := e.Name(); strings.HasSuffix(name, suffix) && !e.IsDir() && !leftover.MatchString(name) {
				byName[name] = filepath.Join(folder, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		paths = append(paths, byName[name])
	}
	return paths
}

var leftover = regexp.MustCompile(`^\.|~$|\.(dpkg-\w+|ucf-\w+|rpm\w+|bak|disabled)$`)

// setting returns the last value of a key in files. In a file with sections, the key is "section.key". It
// reads the common syntax of INI files, shell assignments and simple TOML files.
func (s *search) setting(key string, files ...string) (value string) {
	for _, path := range files {
		section := ""
		for line := range strings.Lines(s.read(path)) {
			line = strings.TrimSpace(line)
			if name, ok := strings.CutPrefix(line, "["); ok {
				section = strings.Trim(name, " ]") + "."
				continue
			}
			if name, v, ok := strings.Cut(line, "="); ok && section+strings.TrimSpace(name) == key {
				v, _, _ = strings.Cut(v, "#")
				value = strings.Trim(v, ` "'`)
			}
		}
	}
	return value
}

// aptTokens matches the comments, strings, words and punctuation of apt.conf(5). "#" also begins a
// comment, but only at the beginning of a line: aptValue removes these.
var aptTokens = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"[^"]*"|[{};]|[^\s{};"]+`)

// aptValue returns the last value of a key in a file of apt.conf(5).
func aptValue(text, key string) (value string, found bool) {
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(text)), func(line string) bool {
		line = strings.TrimSpace(line)
		return strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "#clear ")
	})
	var scope, words []string
	for _, token := range aptTokens.FindAllString(strings.Join(lines, ""), -1) {
		switch {
		case strings.HasPrefix(token, "/*"), strings.HasPrefix(token, "//"):
		case token == "{":
			scope, words = append(scope, strings.Join(words, " ")), nil
		case token == "}":
			scope, words = scope[:max(0, len(scope)-1)], nil
		case token != ";":
			words = append(words, strings.Trim(token, `"`))
		case len(words) == 2 && strings.EqualFold(strings.Join(append(slices.Clone(scope), words[0]), "::"), key):
			value, found, words = words[1], true, nil
		case len(words) == 2 && words[0] == "#clear" && strings.HasPrefix(strings.ToLower(key)+"::", strings.ToLower(words[1])+"::"):
			value, found, words = "", true, nil
		default:
			words = nil
		}
	}
	return value, found
}

var (
	cronSchedule   = regexp.MustCompile(`^(@\w+|(\S+\s+){4}\S+)\s+`)
	cronAssignment = regexp.MustCompile(`^\w+\s*=`)
	cronUser       = regexp.MustCompile(`^\S+\s+`)
)

// cronJobs lists the commands in a crontab. In a system crontab, a user name precedes each.
func cronJobs(text string, system bool) (jobs []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		schedule := cronSchedule.FindString(line)
		if schedule == "" || line[0] == '#' || cronAssignment.MatchString(line) {
			continue
		}
		job := line[len(schedule):]
		if system {
			job = job[len(cronUser.FindString(job)):]
		}
		jobs = append(jobs, job)
	}
	return jobs
}
