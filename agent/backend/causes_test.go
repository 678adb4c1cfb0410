package backend

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
)

func TestLoopsNameWhatTheirErrorsAreAbout(t *testing.T) {
	keeper, err := certificate.New(certificate.Options{Node: "n", Directory: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	written, renewed, trouble := errors.New("disk full"), errors.New("disk full"), errors.New("no bus")
	away := fmt.Errorf("watch node: %w", controlplane.ErrUnavailable)
	for name, c := range map[string]struct {
		err         error
		certificate *certificate.Keeper // has no certificate yet
		want        api.Cause
	}{
		"none":                           {nil, keeper, ""},
		"of the last write":              {fmt.Errorf("report: %w", written), nil, api.CauseNode},
		"of the last renewal":            {renewed, nil, api.CauseLease},
		"of the guard":                   {trouble, keeper, api.CauseShutdown},
		"of another request":             {away, nil, api.CauseUnreachable},
		"of another machine":             {fmt.Errorf("%w: %w", written, &controlplane.IdentityError{}), nil, api.CauseIdentity},
		"for want of a certificate":      {away, keeper, api.CauseCertificate},
		"of a write without certificate": {written, keeper, api.CauseCertificate},
		"of files that are served by":    {fmt.Errorf("serve: %w", &listen.FilesError{Err: errors.New("gone")}), keeper, api.CauseTLS},
		"of a runtime":                   {runtime.MemberError{Runtime: "docker", Err: errors.New("disk full")}, keeper, ""},
	} {
		l := loop.New("one", 0, nil)
		l.Heartbeat(c.err)
		h := Host{Loops: loop.Set{l}, Registers: &Registration{ControlPlane: &open.ControlPlane{Certificate: c.certificate}}}
		if got := h.loops(written, renewed, trouble)[0]; got.Cause != c.want || (len(got.Runtimes) > 0) != (name == "of a runtime") {
			t.Errorf("an error %s has cause %q and runtimes %v, want %q", name, got.Cause, got.Runtimes, c.want)
		}
	}
	for err, want := range map[error]api.Cause{
		&certificate.RefusedError{Err: &certificate.WaitingError{Request: "csr"}}: api.CauseApproval,
		&certificate.RefusedError{Err: controlplane.ErrUnauthorized}:              api.CauseCertificate,
	} {
		if got := certificateCause(err); got != want {
			t.Errorf("cause of %v = %q, want %q", err, got, want)
		}
	}
}
