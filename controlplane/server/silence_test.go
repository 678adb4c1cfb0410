package server_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/server"
	"hostler.io/hostler/systemd/notify"
)

func TestASilenceIsReadAsItWasSaved(t *testing.T) {
	long := lifecycle.Silence{Contact: time.Minute, Hosts: []lifecycle.SilentHost{{Name: strings.Repeat("h", 1000)}}}
	want := lifecycle.Silence{Contact: time.Hour, Answered: time.Second, Hosts: []lifecycle.SilentHost{{
		Name: "h", UID: "1", Ready: "True", Heartbeat: time.Unix(1, 2).UTC(), Lease: true, Renewal: "r", Renewed: 30 * time.Second,
	}}}
	for name, manager := range map[string]*serviceManager{"with systemd": newServiceManager(t), "without": nil} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "s")
			first := manager.silences(t, file)
			if got, _, err := first.Load(); err != nil || got.Contact != 0 {
				t.Errorf("Load() at the first start = %+v, %v, want none", got, err)
			}
			before := time.Now()
			if err := errors.Join(first.Save(long, before), first.Save(want, before)); err != nil {
				t.Fatal(err)
			}
			got, taken, err := manager.silences(t, file).Load()
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("Load() = %+v, %v, want %+v", got, err, want)
			}
			if off := taken.Sub(before).Abs(); off > time.Since(before) {
				t.Errorf("taken is wrong by %v", off)
			}
			if _, err := os.Stat(file); (err == nil) != (manager == nil) {
				t.Errorf("the file: %v, want one only without systemd", err)
			}
		})
	}
}

// serviceManager stores descriptors, as systemd does for a service.
type serviceManager struct {
	socket *net.UnixConn
	stored []*os.File
}

func newServiceManager(t *testing.T) *serviceManager {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return &serviceManager{socket: socket}
}

// silences returns what the next process of the service opens; nil is no manager.
func (m *serviceManager) silences(t *testing.T, file string) server.Silences {
	t.Helper()
	environment := map[string]string{}
	if m == nil {
		m = &serviceManager{}
	} else {
		environment["NOTIFY_SOCKET"] = m.socket.LocalAddr().String()
	}
	manager := notify.New(func(name string) string { return environment[name] }, func(string) error { return nil })
	silences, err := server.SilencesOf(m.stored, manager, m.socket != nil, file)
	if err != nil {
		t.Fatal(err)
	}
	if m.socket != nil && m.stored == nil {
		m.receive(t)
	}
	return silences
}

// receive stores the descriptor of the next message.
func (m *serviceManager) receive(t *testing.T) {
	t.Helper()
	text, control := make([]byte, 1<<10), make([]byte, 1<<10)
	n, size, _, _, err := m.socket.ReadMsgUnix(text, control)
	if err != nil || string(text[:n]) != "FDSTORE=1\nFDNAME=silence\nFDPOLL=0" {
		t.Fatalf("the server sent %q, %v", text[:n], err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil || len(messages) != 1 {
		t.Fatalf("messages = %v, %v, want one", messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("descriptors = %v, %v, want one", fds, err)
	}
	m.stored = []*os.File{os.NewFile(uintptr(fds[0]), "silence")}
}

func TestASilenceOfAnotherBootIsNotUsed(t *testing.T) {
	for name, change := range map[string][2]time.Duration{ // how much later the clocks were: the monotonic one, the wall clock
		"a power cut":                      {-time.Hour, time.Minute},
		"a power cut, and a long run then": {0, -10 * time.Minute},
		"the wall clock was set":           {0, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			file := server.SilenceFile(filepath.Join(t.TempDir(), "s"))
			if err := file.SaveWith(lifecycle.Silence{Contact: time.Hour}, -change[0], change[1]); err != nil {
				t.Fatal(err)
			}
			if got, _, err := file.Load(); err != nil || got.Contact != 0 {
				t.Errorf("Load() = %+v, %v, want none", got, err)
			}
		})
	}
}

func TestASilenceThatOthersMayChangeIsNotUsed(t *testing.T) {
	folder := t.TempDir()
	file, link := server.SilenceFile(filepath.Join(folder, "s")), server.SilenceFile(filepath.Join(folder, "link"))
	if err := errors.Join(file.Save(lifecycle.Silence{Contact: time.Hour}, time.Now()), os.Symlink(string(file), string(link)), os.Chmod(folder, 0o777)); err != nil {
		t.Fatal(err)
	}
	if got, _, err := file.Load(); err != nil || got.Contact == 0 {
		t.Errorf("Load() in a folder of everybody = %+v, %v, want what was saved", got, err)
	}
	if got, _, err := link.Load(); err == nil || got.Contact != 0 {
		t.Errorf("Load() through a link = %+v, %v, want an error", got, err)
	}
	if err := os.Chmod(string(file), 0o622); err != nil {
		t.Fatal(err)
	}
	if got, _, err := file.Load(); err == nil || got.Contact != 0 {
		t.Errorf("Load() = %+v, %v, want an error", got, err)
	}
}

func TestNoSilenceIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	file := server.SilenceFile(path)
	if got, _, err := file.Load(); err != nil || got.Contact != 0 {
		t.Errorf("Load() without a file = %+v, %v, want none", got, err)
	}
	for _, text := range []string{"", "{", `{"Taken":"x"}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _, err := file.Load(); err == nil || got.Contact != 0 {
			t.Errorf("Load() of %q = %+v, %v, want an error", text, got, err)
		}
	}
}
