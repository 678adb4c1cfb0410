package notify_test

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/systemd/notify"
	"hostler.io/hostler/systemd/systemdtest"
)

// environment is a process environment of the test's own.
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

func (e environment) unset(name string) error { delete(e, name); return nil }

func TestNotifierSaysWhatSystemdUnderstands(t *testing.T) {
	manager := systemdtest.NewServiceManager(t, 1)
	env := environment{"NOTIFY_SOCKET": manager.Getenv("NOTIFY_SOCKET")}
	n := notify.New(env.get, env.unset)
	if len(env) != 0 {
		t.Errorf("New() left %v in the environment, want nothing", env)
	}
	cases := []struct {
		name string
		send func() error
		want string
	}{
		{"ready", n.Ready, "READY=1"},
		{"stopping", n.Stopping, "STOPPING=1"},
		{"watchdog", n.Watchdog, "WATCHDOG=1"},
		{"a status stays one line", func() error { return n.Status("two\nlines") }, "STATUS=two lines"},
		{"more time", func() error { return n.ExtendTimeout(1500 * time.Millisecond) }, "EXTEND_TIMEOUT_USEC=1500000"},
		{"a descriptor to drop", func() error { return n.RemoveFiles("x") }, "FDSTOREREMOVE=1\nFDNAME=x"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := c.send(); err != nil {
				t.Fatalf("send = %v, want nil", err)
			}
			if got := manager.Next(t); got != c.want {
				t.Errorf("sent %q, want %q", got, c.want)
			}
		})
	}
	t.Run("reloading carries the time", func(t *testing.T) {
		if err := n.Reloading(); err != nil {
			t.Fatalf("Reloading() = %v, want nil", err)
		}
		got := manager.Next(t)
		usec, ok := strings.CutPrefix(got, "RELOADING=1\nMONOTONIC_USEC=")
		if n, err := strconv.ParseUint(usec, 10, 64); !ok || err != nil || n == 0 {
			t.Errorf("Reloading() sent %q, want RELOADING=1 and MONOTONIC_USEC", got)
		}
	})
}

func TestNotifierReachesAnAbstractSocket(t *testing.T) {
	name := "@hostler-test-" + strconv.Itoa(os.Getpid())
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	env := environment{"NOTIFY_SOCKET": name}
	if err := notify.New(env.get, env.unset).Ready(); err != nil {
		t.Fatalf("Ready() = %v, want nil", err)
	}
	data := make([]byte, 100)
	if n, err := conn.Read(data); err != nil || string(data[:n]) != "READY=1" {
		t.Errorf("received %q, %v, want READY=1", data[:n], err)
	}
}

func TestNotifierWithoutAServiceManagerDoesNothing(t *testing.T) {
	env := environment{}
	n := notify.New(env.get, env.unset)
	for name, send := range map[string]func() error{
		"Ready": n.Ready, "Reloading": n.Reloading, "Watchdog": n.Watchdog, "zero value": (&notify.Notifier{}).Ready,
		"StoreFile": func() error { return n.StoreFile("x", os.Stdin) },
	} {
		if err := send(); err != nil {
			t.Errorf("%s() = %v, want nil", name, err)
		}
	}
	if got := n.WatchdogInterval(); got != 0 {
		t.Errorf("WatchdogInterval() = %v, want 0", got)
	}
}

func TestNotifierWhoseServiceManagerIsGoneReportsIt(t *testing.T) {
	env := environment{"NOTIFY_SOCKET": t.TempDir() + "/none"}
	if err := notify.New(env.get, env.unset).Ready(); err == nil || !strings.Contains(err.Error(), "READY=1") {
		t.Errorf("Ready() = %v, want an error that names READY=1", err)
	}
}

func TestWatchdogIntervalIsForTheProcessItNames(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	cases := []struct {
		name string
		env  environment
		want time.Duration
	}{
		{"for this process", environment{"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": own}, 30 * time.Second},
		{"for whoever reads it", environment{"WATCHDOG_USEC": "30000000"}, 30 * time.Second},
		{"for another process", environment{"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": own + "0"}, 0},
		{"not a number", environment{"WATCHDOG_USEC": "soon"}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := notify.New(c.env.get, c.env.unset).WatchdogInterval(); got != c.want {
				t.Errorf("WatchdogInterval() = %v, want %v", got, c.want)
			}
			if len(c.env) != 0 {
				t.Errorf("New() left %v in the environment, want nothing", c.env)
			}
		})
	}
}

func TestPassedFilesTakesOverWhatTheManagerPassed(t *testing.T) {
	if os.Getenv("LISTEN_FDS") != "" { // the process that receives the descriptors
		getenv := func(name string) string {
			if name == "LISTEN_PID" {
				return strconv.Itoa(os.Getpid()) // only the process itself knows it
			}
			return os.Getenv(name)
		}
		files, err := notify.PassedFiles(getenv, os.Unsetenv)
		if err != nil || len(files) != 2 || files[0].Name() != "inhibit" || files[1].Name() != "other" {
			t.Fatalf("PassedFiles() = %v, %v, want inhibit and other", files, err)
		}
		if _, err := files[0].WriteString("here"); err != nil {
			t.Errorf("write to the passed descriptor: %v", err)
		}
		if again, err := notify.PassedFiles(getenv, os.Unsetenv); len(again) != 0 || err != nil {
			t.Errorf("PassedFiles() = %v, %v the second time, want none", again, err)
		}
		return
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "LISTEN_FDS=2", "LISTEN_FDNAMES=inhibit:other")
	cmd.ExtraFiles = []*os.File{writer, writer}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	writer.Close()
	data := make([]byte, 100)
	if n, err := reader.Read(data); err != nil || string(data[:n]) != "here" {
		t.Errorf("the other process wrote %q, %v, want here", data[:n], err)
	}
}

func TestPassedFilesIgnoresDescriptorsOfOthers(t *testing.T) {
	env := environment{"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "inhibit"}
	files, err := notify.PassedFiles(env.get, env.unset)
	if len(files) != 0 || err != nil {
		t.Errorf("PassedFiles() = %v, %v, want none", files, err)
	}
	if len(env) != 0 {
		t.Errorf("PassedFiles() left %v in the environment, want nothing", env)
	}
}
