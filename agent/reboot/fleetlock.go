package reboot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/redirect"
	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/internal/trust"
)

const (
	// askInterval is the time between requests for a slot.
	askInterval = time.Minute
	// mostAnswer bounds the answer, and mostMessage the part of it that is shown, in bytes.
	mostAnswer  = 64 << 10
	mostMessage = 300
)

// FleetLock is the Lock that uses a server of the FleetLock protocol
// (https://coreos.github.io/zincati/development/fleetlock/protocol/).
type FleetLock struct {
	base   *url.URL
	params []byte // body of each request
	client *http.Client
	// passwordFile has the password that the server requires; empty for none.
	passwordFile string

	at    requested // for which the lock was requested last
	asked time.Time // time of that request, by the monotonic clock
	last  Turn
}

// requested is a step of a request.
type requested struct {
	id   string
	step controlplane.RebootStep
}

// lockTime bounds a request. A server may first confirm which hosts are ready: `hostler server` takes up to 25 s.
const lockTime = 30 * time.Second

// NewFleetLock returns the lock of a server. The Host and Group of id identify this host there.
func NewFleetLock(base *url.URL, id LockID) (*FleetLock, error) {
	type client struct {
		ID    string `json:"id"`
		Group string `json:"group"`
	}
	params, err := json.Marshal(map[string]client{"client_params": {id.Host, id.Group}})
	return &FleetLock{base: base, params: params, passwordFile: id.PasswordFile, client: &http.Client{Timeout: lockTime, CheckRedirect: redirect.Refuse}}, err
}

// Turn implements Lock. It also requests the lock at the start of each step that must not begin without it: the
// server may have given the slot to another host meanwhile. The protocol allows a host that holds the lock to
// request it again.
func (l *FleetLock) Turn(ctx context.Context, r *Request, _ *corev1.Node) Turn {
	if r.Step == controlplane.RebootVerifying {
		return Turn{Granted: true}
	}
	if at := (requested{r.ID, r.Step}); l.at != at {
		l.at, l.asked = at, time.Time{}
	}
	if !l.asked.IsZero() && time.Since(l.asked) < askInterval {
		return l.last
	}
	l.asked, l.last = time.Now(), Turn{Granted: true}
	if err := l.post(ctx, "v1/pre-reboot"); err != nil {
		refused, is := errors.AsType[*refusal](err)
		l.last = Turn{Message: err.Error(), Unanswered: !is, Lost: is && refused.final && r.running()}
		if l.last.Lost {
			l.last.Message = "the slot is lost: " + l.last.Message
		}
	}
	return l.last
}

// OnNode implements Lock. A request on the Node would also get a slot from `hostler server`.
func (*FleetLock) OnNode() bool { return false }

// Release implements Lock.
func (l *FleetLock) Release(ctx context.Context, _ *Request) error {
	l.asked = time.Time{}
	return l.post(ctx, "v1/steady-state")
}

// refusal is the error if the server denies the request.
type refusal struct {
	message string
	final   bool // the server has decided; otherwise it may only be out of order, or require another password
}

// Error implements error.
func (r *refusal) Error() string { return "lock server: " + r.message }

// post sends a request. It returns an error unless the server accepts it.
func (l *FleetLock) post(ctx context.Context, path string) error {
	target := l.base.JoinPath(path)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(l.params))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("fleet-lock-protocol", "true")
	if l.passwordFile != "" {
		password, err := trust.ReadSecret(l.passwordFile)
		if err != nil {
			return fmt.Errorf("reboot.lock.passwordFile: %w", err)
		}
		req.SetBasicAuth("hostler", password)
	}
	resp, err := l.client.Do(req)
	if _, untrusted := errors.AsType[x509.UnknownAuthorityError](err); untrusted {
		return fmt.Errorf("the lock server is not trusted: %w: add its CA to the trust store of the host, then run `systemctl restart hostler`", err)
	}
	if err != nil {
		return fmt.Errorf("the lock server does not answer: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if resp.StatusCode/100 == 2 {
		return nil
	}
	if resp.StatusCode == http.StatusUnauthorized {
		hint := "set reboot.lock.passwordFile"
		if l.passwordFile != "" {
			hint = "correct the one in " + l.passwordFile
		}
		return &refusal{"it requires a password: " + hint, false}
	}
	var answer struct {
		Kind  string `json:"kind"`
		Value string `json:"value"`
	}
	if err != nil || json.Unmarshal(text, &answer) != nil {
		return fmt.Errorf("the lock server answers %s with %s", target.Redacted(), resp.Status)
	}
	return &refusal{sanitize.Text(cmp.Or(answer.Value, answer.Kind, resp.Status), mostMessage), resp.StatusCode/100 == 4}
}
