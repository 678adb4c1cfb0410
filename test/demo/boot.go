package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/shutdown/journal"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// showNextBoot shuts down and boots again, and shows the record of the shutdown.
func (h *host) showNextBoot(ctx context.Context) error {
	h.out.printf(`The machine cannot really reboot here, so the boot is played: the agent,
		containerd, logind and the bus are ended in the order in which systemd would
		end them, the kernel's boot ID is covered with a new one, and all are started
		again on the same disk and the same state folder.`)
	if err := h.goDown(ctx); err != nil {
		return err
	}
	if err := newBootID(); err != nil {
		return err
	}
	if err := h.startDaemons(ctx); err != nil {
		return err
	}
	h.out.command("hostler agent --config "+configFile+" &", "")
	if err := h.startAgent(ctx); err != nil {
		return err
	}
	s, err := h.settled(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(h.show(ctx, "status"), h.show(ctx, "ps", "--last-shutdown"), h.draw(ctx), h.show(ctx, "ps")); err != nil {
		return err
	}
	now := s.Node.Status.NodeInfo.BootID
	h.out.checks()
	h.out.check(s.Node.UID == h.before.UID, "the Node is the one of before", "its UID is %s, and was %s", s.Node.UID, h.before.UID)
	h.out.check(now != h.before.Status.NodeInfo.BootID, "the Node has a new boot ID", "it has the old one, %s", now)
	last := s.Shutdown.Last
	if last == nil {
		h.out.check(false, "the last shutdown is known", "nothing is known of it")
		return nil
	}
	h.out.check(strings.HasPrefix(last.BootID, h.before.Status.NodeInfo.BootID), "the last shutdown is known, and is that of the boot before", "its boot ID is %s, want %s", last.BootID, h.before.Status.NodeInfo.BootID)
	h.out.check(last.Graceful && last.Trigger == journal.TriggerShutdown, "it left no pod running", "it says graceful=%t, trigger %q, error %q", last.Graceful, last.Trigger, last.Error)
	for _, a := range h.workload.pods {
		want, got := journal.Stopped, journal.Outcome("nothing")
		if a.takes == 0 {
			want = journal.Killed
		}
		for _, p := range last.Pods {
			if p.ID == a.ID {
				got = p.Outcome
			}
		}
		h.out.check(got == want, fmt.Sprintf("%s was %s", a.title(), want), "the record says %q", got)
	}
	return nil
}

// draw shows the shutdown over time, and stores the picture with its data.
func (h *host) draw(ctx context.Context) error {
	if err := h.show(ctx, "shutdown", "report"); err != nil || h.picture == "" {
		return err
	}
	for file, form := range map[string]string{h.picture: "--svg", h.record: "--output=json"} {
		text, err := run(ctx, h.binary, "shutdown", "report", form)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// goDown ends the agent and the daemons.
func (h *host) goDown(ctx context.Context) error {
	stopping := time.Now()
	if err := h.stopAgent(ctx); err != nil {
		return err
	}
	took := time.Since(stopping)
	running, err := h.containerd.Runtime.ListContainers(ctx, &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}},
	})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	h.out.checks()
	h.out.check(took < 5*time.Second, "the agent, with nothing left to wait for, ended at once and with code 0", "it took %s", took)
	h.out.check(len(running.Containers) == 0, "no container runs any more", "there are %d", len(running.Containers))
	err = errors.Join(h.containerd.GoDown(ctx), h.login.Close(ctx), h.manager.Close())
	h.login, h.manager = nil, nil
	return err
}

// newBootID replaces the kernel's boot ID, inside the lab only.
func newBootID() error {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	id := fmt.Sprintf("%x-%x-%x-%x-%x\n", random[:4], random[4:6], random[6:8], random[8:10], random[10:])
	file := filepath.Join(folder, "boot_id")
	if err := os.WriteFile(file, []byte(id), 0o444); err != nil {
		return err
	}
	if err := unix.Mount(file, bootIDFile, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover %s: %w", bootIDFile, err)
	}
	return nil
}
