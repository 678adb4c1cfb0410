package cli_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	serveranswer "hostler.io/hostler/controlplane/server/answer"
)

func TestFleetSlots(t *testing.T) {
	held := ago(50 * time.Minute)
	all := serveranswer.Slots{State: serveranswer.Standby, Groups: []serveranswer.SlotGroup{
		{
			Name: "default", Slots: 2, OneZoneAtATime: true, MaxUnavailable: "10%", Nodes: 12, NotReady: 1, NotReadyNodes: []string{"n9"},
			Holders: []serveranswer.SlotHolder{
				{ID: "n1", Since: ago(2 * time.Minute), By: "agent", Node: "n1", Zone: "a", Reason: "kernel 6.12.60", Note: "its Node is Ready, and has not booted since", Step: "Draining", Waits: "pods left on the Node: 3, of them cannot be evicted now: 1: default/web-0 (The disruption budget web needs 2 healthy pods and has 2 currently), default/batch-1, default/batch-2"},
				{ID: "c988d2509fdf5cdcbed39037c56406fb", Since: ago(3 * time.Hour), By: "fleetlock", Late: true},
			},
			WithoutSlot: []serveranswer.SlotHolder{
				{ID: "n8", Since: ago(3 * time.Minute), By: "agent", Node: "n8", Zone: "b", Reason: "firmware", Note: "it holds no slot: the reboot was requested with --now", Step: "Rebooting"},
			},
			Waiting: []serveranswer.SlotRequest{
				{ID: "n2", Since: ago(time.Minute), By: "agent", Wait: "all slots of the group are held: n1 since 2026-11-17T14:03:00Z"},
				{ID: "n3", Since: ago(time.Minute), By: "fleetlock", Wait: "a slot is kept free for it until it repeats its request", Kept: true},
				{ID: "n6", Since: ago(3 * time.Hour), By: "agent", Reason: "kernel 6.12.60", Wait: "the host does not want the slot yet: the window opens at 2026-11-28T02:00:00Z", Paused: true},
			},
			Unrecorded: 12,
			Releases: []serveranswer.SlotRelease{
				{ID: "n4", Held: &held, At: ago(40 * time.Minute), How: "Released", By: "anna", Reason: "disk broken"},
				{ID: "n5", At: ago(time.Hour), How: "Released", By: "anna", Reason: "reinstalled"},
			},
		},
		{Name: "workers", Slots: 1, MaxUnavailable: "1", Error: "the stored value cannot be read"},
	}}
	for name, s := range map[string]serveranswer.Slots{
		"busy": all, "idle": {State: serveranswer.Leading, FleetLock: "127.0.0.1:9757", Groups: []serveranswer.SlotGroup{{Name: "default", Slots: 1, MaxUnavailable: "10%"}}}, "off": {State: serveranswer.Disabled},
		"unread": {State: serveranswer.Starting, Unread: "the control plane does not answer: reading Nodes", Groups: []serveranswer.SlotGroup{{Name: "default", Slots: 1, MaxUnavailable: "10%"}}},
	} {
		socket := serveFleet(t, "/v1/fleet/slots", s)
		golden(t, "fleet/slots-"+name, hostler("", "fleet", "slots", "--socket", socket).stdout)
		golden(t, "fleet/slots-"+name+"-wide", hostler("", "fleet", "slots", "--socket", socket, "-o", "wide").stdout)
	}
	status := serveFleet(t, "/v1/fleet/status", serveranswer.Status{Version: "1.2.3", Candidate: "e1_1_a", Store: serveranswer.Store{Type: "etcd", Endpoint: "https://e1:2379"}, Slots: all.Groups})
	if got := hostler("", "fleet", "status", "--socket", status).stdout; !strings.Contains(got, "default 2 of 2 held: n1, c988d2509fdf5cdcbed39037c56406fb; 15 waiting; workers 0 of 1 held") {
		t.Errorf("fleet status = %s, want the slots", got)
	}
}

func TestFleetStatusShowsFilesThatAreNotEffective(t *testing.T) {
	status := serveFleet(t, "/v1/fleet/status", serveranswer.Status{Version: "1.2.3", Configuration: &serveranswer.Configuration{Differs: []string{"controllers"}, Restart: true}})
	want := "the files of the server differ from its effective configuration: controllers: systemctl restart hostler-server\n"
	if got := hostler("", "fleet", "status", "--socket", status).stdout; !strings.Contains(got, want) {
		t.Errorf("fleet status = %s, want %q", got, want)
	}
}

func TestFleetSlotsRelease(t *testing.T) {
	const path = "/v1/fleet/slots/release"
	request := serveranswer.ReleaseRequest{ID: "n1", Group: "default", Reason: "disk broken"}
	socket := serveFleet(t, path, serveranswer.Release{ReleaseRequest: request})
	if got := hostler("", "fleet", "slots", "release", "n1", "--reason", "disk broken", "--socket", socket); got.code != 0 || got.stdout != "n1 has no slot of group default any more, and does not wait for one; recorded: disk broken\n" {
		t.Errorf("release = %+v, want that it is recorded", got)
	}
	counted := serveFleet(t, path, serveranswer.Release{ReleaseRequest: request, Message: "no host gets a slot"})
	if got := hostler("", "fleet", "slots", "release", "n1", "--reason", "disk broken", "--socket", counted); got.code != 0 || !strings.HasSuffix(got.stdout, "\nno host gets a slot\n") {
		t.Errorf("release = %+v, want the message of the server", got)
	}
	refused := serveFleetAnswers(t, map[string]any{path: &api.Error{Message: "only root may do this", Hint: "run the command with sudo", Status: http.StatusForbidden}})
	if got := hostler("", "fleet", "slots", "release", "n1", "--reason", "x", "--socket", refused); got.code != 1 || !strings.Contains(got.stderr, "hint: run the command with sudo") {
		t.Errorf("release that is refused = %+v, want the hint", got)
	}
	for args, want := range map[string]string{
		"release n1":               "say why with --reason",
		"release n1 --reason= ":    "say why with --reason",
		"release --reason x":       "takes one ID",
		"release n1 n2 --reason x": "takes one ID",
		"relaese n1":               "relaese",
	} {
		if got := hostler("", append([]string{"fleet", "slots"}, strings.Fields(args)...)...); got.code != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("fleet slots %s = %+v, want a usage error with %q", args, got, want)
		}
	}
}
