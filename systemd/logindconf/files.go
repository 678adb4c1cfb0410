// Package logindconf reads the configuration files of systemd-logind in logind's order and syntax,
// and reports when they are changed or opened.
//
// It owns which delay of a shutdown the files set. It writes no files. A running logind may have
// read an older version of them.
package logindconf

import (
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// DefaultDelay is logind's default (InhibitDelayMaxSec= in logind.conf(5)).
const DefaultDelay = 5 * time.Second

// File is one of logind's configuration files.
type File struct {
	// Path is the file's path for logind: "/etc/systemd/logind.conf".
	Path string
	// Content is the file's content. A mask (a link to /dev/null) is empty.
	Content []byte
	// Unreadable means that the file exists but cannot be read, or is not a file. logind stops
	// there as at a torn file (seen with a folder on systemd 252 and 257). If a link points to
	// itself, 257 stops before it reads any file.
	Unreadable bool
}

// Setting is a value of InhibitDelayMaxSec=, with its source.
type Setting struct {
	Max time.Duration
	// Source is the path of the file that sets it, empty for the built-in default.
	Source string
}

// folders returns the folders in logind's order of precedence (logind.conf(5)): a file masks those
// of the same name in later folders.
func folders() []string {
	return []string{"/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd"}
}

// Load returns the files under root that logind reads, in the order of reading. That is the main
// file, then the drop-ins of all folders by name, without masked ones. If files could not be read,
// the error names them, and the result has the others.
func Load(root string) ([]File, error) {
	var main string
	dropIns := map[string]string{} // name to path
	var errs []error
	for _, folder := range folders() {
		path := filepath.Join(folder, "logind.conf")
		if _, err := os.Stat(filepath.Join(root, path)); err == nil && main == "" {
			main = path
		}
		folder = filepath.Join(folder, "logind.conf.d")
		entries, err := os.ReadDir(filepath.Join(root, folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, entry := range entries {
			name := entry.Name()
			if strings.HasPrefix(name, ".") || !strings.HasSuffix(name, ".conf") || dropIns[name] != "" {
				continue
			}
			dropIns[name] = filepath.Join(folder, name)
		}
	}
	var paths []string
	if main != "" {
		paths = append(paths, main)
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		paths = append(paths, dropIns[name])
	}
	var files []File
	for _, path := range paths {
		content, err := readFile(filepath.Join(root, path))
		if err != nil {
			errs = append(errs, err)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a dangling link, which logind skips
			}
		}
		files = append(files, File{Path: path, Content: content, Unreadable: err != nil})
	}
	return files, errors.Join(errs...)
}

// maxSize is larger than any such file; logind stops at longer lines.
const maxSize = 1 << 20

// readFile reads a file or a mask. It refuses others, such as a fifo, which might never end: logind
// itself hangs then (seen on systemd 252).
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch kind := info.Mode().Type(); {
	case kind&fs.ModeCharDevice != 0:
		return nil, nil // /dev/null
	case kind != 0:
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	case info.Size() > maxSize:
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("too long for a configuration file")}
	}
	return os.ReadFile(path)
}

// Effective returns the delay that logind grants after it reads files in the given order (see
// Load): the last valid InhibitDelayMaxSec= wins. For the delay that logind grants now, see
// Logind.MaxDelay.
func Effective(files []File) Setting {
	setting := Setting{Max: DefaultDelay}
	lines, _ := delayLines(files)
	for _, line := range lines {
		if line.valid {
			setting = line.Setting
		}
	}
	return setting
}

// delayLine is one InhibitDelayMaxSec=. logind ignores it if it is invalid.
type delayLine struct {
	Setting
	value string
	valid bool
}

// delayLines returns those of all files, in the order of reading, and the path of the file at which
// logind stops reading, or "".
func delayLines(files []File) (lines []delayLine, broken string) {
	for _, file := range files {
		if file.Unreadable {
			return lines, file.Path
		}
		values, whole := settings(string(file.Content), "Login", "InhibitDelayMaxSec")
		for _, value := range values {
			span, ok := parseSpan(value)
			lines = append(lines, delayLine{Setting{Max: span, Source: file.Path}, value, ok})
		}
		if !whole {
			return lines, file.Path
		}
	}
	return lines, ""
}

// settings returns the values of key in a section, in order, as described in systemd.syntax(7):
// unknown lines are skipped. systemd stops at a section header that is not closed, or at a line
// that is not UTF-8. Then the values before it count, and whole is false (config_parse in
// src/shared/conf-parser.c).
func settings(text, section, key string) (values []string, whole bool) {
	current, pending := "", ""
	// For systemd, a null byte ends a line. A torn file may be full of them.
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\x00", "\n")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue // even between the lines of a continued one
		}
		line = pending + line
		pending = ""
		if before, continued := strings.CutSuffix(line, `\`); continued {
			pending = before + " "
			continue
		}
		if !utf8.ValidString(line) {
			return values, false
		}
		if name, ok := strings.CutPrefix(line, "["); ok {
			if current, ok = strings.CutSuffix(name, "]"); !ok {
				return values, false
			}
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if ok && current == section && strings.TrimSpace(name) == key {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values, true
}

// parseSpan parses a time span in the syntax of systemd.time(7), in seconds if there is no unit:
// "90", "1min 30s", "1.5h", "infinity".
func parseSpan(text string) (time.Duration, bool) {
	rest := strings.TrimSpace(text)
	if rest == "infinity" {
		return math.MaxInt64, true
	}
	if rest == "" {
		return 0, false
	}
	var total float64
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		number, err := strconv.ParseFloat(rest[:digits], 64)
		if err != nil {
			return 0, false
		}
		rest = strings.TrimLeft(rest[digits:], " \t")
		unit, scale := spanUnit(rest)
		rest = strings.TrimLeft(rest[len(unit):], " \t")
		total += number * float64(scale)
	}
	if total >= math.MaxInt64 {
		return math.MaxInt64, true
	}
	return time.Duration(total), true
}

// spanUnit returns the longest unit with which text begins, or seconds if there is none.
func spanUnit(text string) (unit string, scale time.Duration) {
	const day = 24 * time.Hour
	scale = time.Second
	for name, s := range map[string]time.Duration{
		"usec": time.Microsecond, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
		"msec": time.Millisecond, "ms": time.Millisecond,
		"seconds": time.Second, "second": time.Second, "sec": time.Second, "s": time.Second,
		"minutes": time.Minute, "minute": time.Minute, "min": time.Minute, "m": time.Minute,
		"hours": time.Hour, "hour": time.Hour, "hr": time.Hour, "h": time.Hour,
		"days": day, "day": day, "d": day,
		"weeks": 7 * day, "week": 7 * day, "w": 7 * day,
		"months": 2629800 * time.Second, "month": 2629800 * time.Second, "M": 2629800 * time.Second,
		"years": 31557600 * time.Second, "year": 31557600 * time.Second, "y": 31557600 * time.Second,
	} {
		if strings.HasPrefix(text, name) && len(name) > len(unit) {
			unit, scale = name, s
		}
	}
	return unit, scale
}
