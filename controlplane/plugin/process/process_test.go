package process_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/controlplane/plugin/plugintest"
	"hostler.io/hostler/controlplane/plugin/process"
	v1 "hostler.io/hostler/controlplane/plugin/v1"
	"hostler.io/hostler/internal/logtest"
)

// TestMain is the program of a plugin where it is run as one: with the word "plugin" and
// what kind of one it is to be.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "plugin" {
		os.Exit(play(os.Args[2]))
	}
	os.Exit(m.Run())
}

// play is a plugin of that kind. One that serves says as its endpoint which process it is.
func play(kind string) int {
	socket := os.Getenv(process.SocketVariable)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	switch kind {
	case "broken":
		fmt.Fprintln(os.Stderr, "no such fleet")
		return 3
	case "painted":
		fmt.Fprint(os.Stderr, "\x1b]0;title\x07\x1b[31mno such\t\x1b[0mfleet\u202e\a\n")
		return 3
	case "mute":
		<-ended
		return 0
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "parent":
		child, err := os.StartProcess(os.Args[0], []string{os.Args[0], "plugin", "stubborn"}, &os.ProcAttr{
			Env: []string{process.SocketVariable + "=" + socket + "-of-the-child"}, Files: []*os.File{nil, os.Stdout, os.Stderr},
		})
		if err != nil {
			return 4
		}
		fmt.Printf("child %d\n%s\n", child.Pid, strings.Repeat("x", 10_000))
	}
	server := &plugintest.Server{About: func(r *v1.InfoResponse) { r.Endpoint = strconv.Itoa(os.Getpid()) }}
	stop, err := server.Listen(socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 5
	}
	<-ended
	stop()
	return 0
}

// bed is a program that can be run, and the store over it.
type bed struct {
	t       *testing.T
	log     *logtest.Book
	socket  string
	store   *plugin.Store
	program *process.Process
	beats   chan error // one for each look; the first is waited for
	ended   chan error
	stop    context.CancelFunc
}

func newBed(t *testing.T, command ...string) *bed {
	t.Helper()
	folder, err := os.MkdirTemp("", "process-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(folder)) })
	b := &bed{t: t, log: &logtest.Book{}, socket: process.Socket(filepath.Join(folder, "hostler.sock")), beats: make(chan error, 1000)}
	b.store, err = plugin.New(plugin.Options{Socket: b.socket, Version: "1.2.3", Log: b.log.Logger()})
	check(t, err)
	t.Cleanup(func() { check(t, b.store.Close()) })
	b.program, err = process.New(process.Options{Command: command, Socket: b.socket, Probe: b.store.Probe, Log: b.log.Logger()})
	check(t, err)
	return b
}

// kind is the command of a plugin of that kind.
func kind(t *testing.T, kind string) []string {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	return []string{self, "plugin", kind}
}

// run runs the program until it ends or the test does.
func (b *bed) run() {
	ctx, cancel := context.WithCancel(b.t.Context())
	b.stop, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- b.program.Run(ctx, func(err error) { b.beats <- err }) }()
	b.t.Cleanup(func() {
		cancel()
		select {
		case <-b.ended:
		default: // it was waited for
		}
	})
}

// serves runs the program until it serves, and returns which process it is.
func (b *bed) serves() int {
	b.t.Helper()
	b.run()
	for {
		select {
		case err := <-b.beats:
			if err != nil {
				continue
			}
			id, err := strconv.Atoi(b.store.Endpoint())
			check(b.t, err)
			return id
		case err := <-b.ended:
			b.t.Fatalf("Run() = %v, want it to serve\n%s", err, b.log)
		}
	}
}

// gone wants a process to have ended.
func gone(t *testing.T, what string, id int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err == nil && !strings.Contains(string(text), ") Z ") { // nobody may have waited for it
		t.Errorf("%s still runs: %s", what, text)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPluginIsServedByItsProgramForAsLongAsTheRun(t *testing.T) {
	b := newBed(t, kind(t, "good")...)
	id := b.serves()
	info, err := os.Stat(filepath.Dir(b.socket))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the socket is %v, %v, want mode 0700", info, err)
	}
	if _, err := b.store.Get(t.Context(), objects.Key{Kind: objects.Node, Node: "n"}); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("Get() = %v, want an answer", err)
	}
	b.stop()
	if err := <-b.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run() = %v, want %v", err, context.Canceled)
	}
	gone(t, "the program", id)
	if ends := b.program.Ends(); ends.Times != 0 {
		t.Errorf("Ends() of a program that was asked to end = %+v, want none", ends)
	}
	if _, err := os.Stat(filepath.Dir(b.socket)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of the socket is left: %v", err)
	}
	if b.log.Count("is killed") > 0 {
		t.Errorf("the program was killed, want it to be asked first:\n%s", b.log)
	}
}

func TestAKilledPluginIsReachedAgainOnceItsProgramRunsAgain(t *testing.T) {
	b := newBed(t, kind(t, "good")...)
	before := b.serves()
	check(t, syscall.Kill(before, syscall.SIGKILL))
	if err := <-b.ended; err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Fatalf("Run() = %v, want how the program ended", err)
	}
	answered := make(chan error, 1)
	go func() { // waits for the next one, by its own deadline
		for {
			_, err := b.store.Get(t.Context(), objects.Key{Kind: objects.Node, Node: "n"})
			if !errors.Is(err, controlplane.ErrUnavailable) {
				answered <- err
				return
			}
		}
	}()
	if after := b.serves(); after == before {
		t.Errorf("process %d serves, want another one", after)
	}
	if err := <-answered; !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("Get() = %v, want an answer of the new program", err)
	}
}

func TestAProgramThatHangsIsEnded(t *testing.T) {
	b := newBed(t, kind(t, "good")...)
	id := b.serves()
	b.stop()
	<-b.ended
	gone(t, "the first program", id)

	b.program.Hurry(time.Minute, 100*time.Millisecond, 100*time.Millisecond)
	id = b.serves()
	check(t, syscall.Kill(id, syscall.SIGSTOP))
	err := <-b.ended
	if err == nil || !strings.Contains(err.Error(), "has not answered 3 times in a row") {
		t.Errorf("Run() = %v, want that it does not answer", err)
	}
	gone(t, "the program", id)
}

func TestAProgramThatDoesNotEndIsKilledWithAllThatItHasStarted(t *testing.T) {
	b := newBed(t, kind(t, "parent")...)
	id := b.serves()
	child := 0
	for child == 0 { // it has been printed by now, and may not be read yet
		_, after, found := strings.Cut(b.log.String(), `text="child `)
		if number, _, whole := strings.Cut(after, `"`); found && whole {
			var err error
			child, err = strconv.Atoi(number)
			check(t, err)
		}
	}
	b.stop()
	<-b.ended
	gone(t, "the program", id)
	gone(t, "its child", child)
	if n := b.log.Count(strings.Repeat("x", 4096)); n != 1 || b.log.Count(strings.Repeat("x", 4097)) > 0 {
		t.Errorf("the log has its long line %d times, want 4096 bytes of it once", n)
	}

	b = newBed(t, kind(t, "stubborn")...)
	b.program.Hurry(time.Minute, time.Minute, time.Millisecond)
	id = b.serves()
	b.stop()
	<-b.ended
	gone(t, "the stubborn program", id)
	if b.log.Count("is killed") != 1 {
		t.Errorf("the log says %d times that it is killed, want once:\n%s", b.log.Count("is killed"), b.log)
	}
}

func TestAProgramThatCannotServeIsNamed(t *testing.T) {
	writable := filepath.Join(t.TempDir(), "writable")
	check(t, os.WriteFile(writable, []byte("#!/bin/sh\n"), 0o755))
	check(t, os.Chmod(writable, 0o775))
	plain := filepath.Join(t.TempDir(), "plain")
	check(t, os.WriteFile(plain, nil, 0o644))
	empty := filepath.Join(t.TempDir(), "empty")
	check(t, os.WriteFile(empty, nil, 0o755))
	orphan := filepath.Join(t.TempDir(), "orphan")
	check(t, os.WriteFile(orphan, []byte("#!/nowhere/sh\n"), 0o755))
	for name, c := range map[string]struct {
		command []string
		want    string
	}{
		"it ends":              {kind(t, "broken"), "has ended: exit status 3: it said: no such fleet"},
		"it paints":            {kind(t, "painted"), "has ended: exit status 3: it said: no such fleet"},
		"it does not serve":    {kind(t, "mute"), "does not serve"},
		"it is not there":      {[]string{"/nowhere/plugin"}, "plugin /nowhere/plugin is not there: install it"},
		"others may write it":  {[]string{writable}, "chmod go-w " + writable},
		"it cannot be run":     {[]string{plain}, "is no executable"},
		"it is nothing":        {[]string{empty}, "names its interpreter"},
		"its shell is missing": {[]string{orphan}, "the interpreter that its first line names, is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, c.command...)
			if name == "it does not serve" { // a busy machine takes its time to have the others end
				b.program.Hurry(time.Second, 100*time.Millisecond, time.Second)
			}
			b.run()
			err := <-b.ended
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Errorf("Run() = %q, want %q", err, c.want)
			}
			if now := b.program.Ends(); now.Times != 1 || now.Last != err || now.At.IsZero() {
				t.Errorf("Ends() = %+v, want the one that Run() told", now)
			}
			if name == "it paints" && b.log.Count(`stream=stderr text="no such fleet"`) != 1 {
				t.Errorf("the log has not what it said alone:\n%s", b.log)
			}
			if name == "it ends" && b.log.Count(`stream=stderr text="no such fleet"`) != 1 {
				t.Errorf("the log does not have what it said:\n%s", b.log)
			}
		})
	}
}

func TestACommandThatCannotBeOneIsRefused(t *testing.T) {
	for _, command := range [][]string{nil, {""}, {"plugin"}} {
		_, err := process.New(process.Options{Command: command, Socket: "/run/p.sock", Probe: func(context.Context) error { return nil }, Log: (&logtest.Book{}).Logger()})
		if err == nil {
			t.Errorf("New(%q) = nil, want an error", command)
		}
	}
}

func TestAProgramsFolderIsNobodyElses(t *testing.T) {
	b := newBed(t, kind(t, "good")...)
	source := filepath.Join(filepath.Dir(filepath.Dir(b.socket)), "plugin", "main.go") // of who writes one there
	check(t, os.Mkdir(filepath.Dir(source), 0o755))
	check(t, os.WriteFile(source, []byte("package main\n"), 0o644))
	b.serves()
	b.stop()
	<-b.ended
	if _, err := os.Stat(source); err != nil {
		t.Errorf("a run beside it leaves %v, want the file there", err)
	}
}
