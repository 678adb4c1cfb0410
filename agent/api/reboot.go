package api

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/reboot"
)

// Rebooter serves the routes that reboot the host when it gets a reboot slot. All methods are safe
// for concurrent use.
type Rebooter interface {
	// Reboot requests a reboot. It returns at once.
	Reboot(ctx context.Context, ask reboot.Ask) (reboot.Report, error)
	// CancelReboot cancels the requested reboot.
	CancelReboot(ctx context.Context) (reboot.Report, error)
	// RebootPlan returns what a reboot would wait for and do now.
	RebootPlan(ctx context.Context) (RebootPlan, error)
}

// RebootPlan is the answer of `hostler reboot --dry-run -o json`.
type RebootPlan struct {
	reboot.Report
	// Unprotected says why a shutdown would not wait for pods. The reboot begins all the same, since it stops them
	// before. Empty if a shutdown would wait, or if Held has the reason.
	Unprotected string `json:"unprotected,omitempty"`
	Node        string `json:"node"`
	// Slots says what grants the reboot slot; empty if the host needs none.
	Slots string `json:"slots"`
	Group string `json:"group"`
	// Window says when the reboot may begin; empty for always.
	Window string                `json:"window"`
	Drain  maintenance.DrainPlan `json:"drain"`
	// RestartAfterBoot is auto, or never where nothing is started again after the boot.
	RestartAfterBoot string          `json:"restartAfterBoot"`
	Command          string          `json:"command"`
	ReadyFor         metav1.Duration `json:"readyFor"`
}

// rebootRoutes are the routes of a Rebooter.
func rebootRoutes(b Rebooter) []route {
	request := answerTo(decodeAny, func(ctx context.Context, a reboot.Ask) (any, error) { return b.Reboot(ctx, a) })
	cancel := answer(func(r *http.Request) (any, error) { return b.CancelReboot(r.Context()) })
	plan := answer(func(r *http.Request) (any, error) { return b.RebootPlan(r.Context()) })
	return []route{
		{"POST /v1/reboot", act, local, request, "Requests a reboot in this host's turn.", reboot.Ask{}, reboot.Report{}, oneJSON},
		{"POST /v1/reboot/cancel", act, local, cancel, "Cancels the reboot that is wanted.", nil, reboot.Report{}, oneJSON},
		{"GET /v1/reboot/plan", read, network, plan, "What a reboot would wait for and do now.", nil, RebootPlan{}, oneJSON},
	}
}

// Reboot requests a reboot.
func (c *Client) Reboot(ctx context.Context, a reboot.Ask) (reboot.Report, error) {
	return ask[reboot.Report](ctx, c, http.MethodPost, "/v1/reboot", a)
}

// CancelReboot cancels the requested reboot.
func (c *Client) CancelReboot(ctx context.Context) (reboot.Report, error) {
	return ask[reboot.Report](ctx, c, http.MethodPost, "/v1/reboot/cancel", nil)
}

// RebootPlan returns what a reboot would wait for and do now.
func (c *Client) RebootPlan(ctx context.Context) (RebootPlan, error) {
	return ask[RebootPlan](ctx, c, http.MethodGet, "/v1/reboot/plan", nil)
}
