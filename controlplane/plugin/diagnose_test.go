package plugin_test

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/controlplane/plugin/plugintest"
	v1 "hostler.io/hostler/controlplane/plugin/v1"
)

// wants checks for an error that contains part; for no error if part is empty.
func wants(t *testing.T, what string, err error, part string) {
	t.Helper()
	if part == "" && err != nil || part != "" && (err == nil || !strings.Contains(err.Error(), part)) {
		t.Errorf("Diagnose(): %s = %v, want %q", what, err, part)
	}
}

func TestADiagnosisReportsWhatAPluginIsAndHas(t *testing.T) {
	s := with(t, &plugintest.Server{})
	if found := s.Diagnose(t.Context(), "n"); found.Node || found.Leaseless || found.Reading != nil {
		t.Errorf("Diagnose() at an empty plugin = %+v, want no node, and that read", found)
	}
	put(t, s, node, "{}", objects.None)
	found := s.Diagnose(t.Context(), "n")
	want := plugin.Diagnosis{Name: "memory", Version: "1.0.0", Endpoint: "memory://", Lists: true, Watches: true, Ends: true, Node: true, Leaseless: true}
	if found != want {
		t.Errorf("Diagnose() = %+v, want %+v", found, want)
	}
	put(t, s, lease, "{}", objects.None)
	if found := s.Diagnose(t.Context(), "n"); !found.Node || found.Leaseless {
		t.Errorf("Diagnose() once there is a lease = %+v, want it seen", found)
	}
}

func TestADiagnosisReportsWhatAPluginDoesNotDo(t *testing.T) {
	unresponsive := func(methods ...string) *plugintest.Server {
		return &plugintest.Server{Fault: func(ctx context.Context, method string) error {
			for _, m := range methods {
				if m == method {
					<-ctx.Done()
					return ctx.Err()
				}
			}
			return nil
		}}
	}
	for name, c := range map[string]struct {
		server                             *plugintest.Server
		silent, reading, listing, watching string
	}{
		"it hangs":                   {server: unresponsive("Info"), silent: "it may hang"},
		"it speaks another protocol": {server: &plugintest.Server{About: func(a *v1.InfoResponse) { a.Protocols = []uint32{2} }}, silent: "supports protocol [2]"},
		"what is behind it is away":  {server: failing("Get", status.Error(codes.Unavailable, "no route")), reading: "no route"},
		"it may not read":            {server: failing("Get", status.Error(codes.PermissionDenied, "not you")), reading: "not you"},
		"it has no List":             {server: failing("List", status.Error(codes.Unimplemented, "no")), listing: "does not implement this call"},
		"it may not list":            {server: failing("List", status.Error(codes.PermissionDenied, "not you"))},
		"its List hangs":             {server: unresponsive("List"), listing: "no answer from"},
		"it has no Watch":            {server: failing("Watch", status.Error(codes.Unimplemented, "no")), watching: "does not implement this call"},
		"its Watch hangs":            {server: unresponsive("Watch"), watching: "no answer from"},
		"it can neither, and says so": {server: &plugintest.Server{
			About: func(a *v1.InfoResponse) { a.Abilities = nil },
			Fault: failing("Watch", status.Error(codes.Unimplemented, "no")).Fault,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := with(t, c.server)
			patience := 5 * time.Minute // for a busy machine
			if strings.Contains(name, "hangs") {
				patience = time.Second
				if c.silent == "" {
					if err := s.Probe(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			found := diagnose(t, s, patience)
			// On a busy machine, calls that do not hang may not be answered within a second either.
			for ; patience < time.Minute && ((found.NoAnswer == nil) != (c.silent == "") || (found.Reading == nil) != (c.reading == "")); patience *= 4 {
				found = diagnose(t, s, patience)
			}
			wants(t, "why nobody is reached", found.Unreached, "")
			wants(t, "why it does not say who it is", found.NoAnswer, c.silent)
			wants(t, "why nothing is read", found.Reading, c.reading)
			wants(t, "why it does not list", found.Listing, c.listing)
			wants(t, "why it does not watch", found.Watching, c.watching)
		})
	}
}

// diagnose is Diagnose with a deadline.
func diagnose(t *testing.T, s *plugin.Store, patience time.Duration) plugin.Diagnosis {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.Diagnose(ctx, "n")
}

func TestADiagnosisReportsWhyNoTrustedServerAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		furnish   func(path string) error
		want, fix string
	}{
		"there is nothing": {func(string) error { return nil }, "socket does not exist", ""},
		"it is no socket":  {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "is not a socket", "remove the file"},
		"nobody serves it": {func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		}, "nothing listens on it", ""},
		"others may write it": {func(path string) error {
			serve(t, path, &plugintest.Server{})
			return os.Chmod(path, 0o722)
		}, "is writable by users other than root", "chmod go-w "},
	} {
		t.Run(name, func(t *testing.T) {
			path := socket(t)
			check(t, c.furnish(path))
			if name == "nobody serves it" {
				check(t, os.Chmod(path, 0o700))
			}
			found := open(t, path).Diagnose(t.Context(), "n")
			wants(t, "why nobody is reached", found.Unreached, c.want)
			if (c.fix == "") != (found.Fix == "") || !strings.HasPrefix(found.Fix, c.fix) && !strings.Contains(found.Fix, c.fix) {
				t.Errorf("Diagnose(): the fix is %q, want %q", found.Fix, c.fix)
			}
		})
	}
}

// A plugin's texts are shown on a terminal.
func TestWhatAPluginSaysWorksOnNoTerminal(t *testing.T) {
	s := with(t, &plugintest.Server{
		About: func(a *v1.InfoResponse) { a.Name, a.Endpoint = "red\x1b[31m", "https://fleet\x1b]0;title\x07.example" },
		Fault: failing("Get", status.Error(codes.Internal, "lost\x1b[2J\r\nall")).Fault,
	})
	err := get(t.Context(), s)
	wants(t, "its words", err, `get nodes/n: plugin "red" at `)
	wants(t, "its words", err, "lost all (Internal)")
	if s.Endpoint() != "https://fleet.example" {
		t.Errorf("Endpoint() = %q, want it without what a terminal obeys", s.Endpoint())
	}
}
