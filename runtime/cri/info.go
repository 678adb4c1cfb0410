package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// aboutAge is how long what a runtime says of itself is believed on the same
// connection. CRI-O takes a new pause image on SIGHUP, which breaks none.
const aboutAge = 10 * time.Minute

// about is what changes only with the runtime's process or configuration.
type about struct {
	dials        uint64 // the connection it was asked on
	askedAt      time.Time
	name         string // as the runtime calls itself: containerd, cri-o, docker
	version      string
	sandboxImage string
}

// fresh returns what is known if it is still to be believed.
func (r *Runtime) fresh() (about, bool) {
	r.aboutMu.Lock()
	defer r.aboutMu.Unlock()
	a := r.about
	return a, !a.askedAt.IsZero() && a.dials == r.dials.Load() && time.Since(a.askedAt) < aboutAge
}

// Info requests the runtime's status: one call, two or three after a connection
// was made. Name in the answer is the runtime's own, such as "containerd".
func (r *Runtime) Info(ctx context.Context) (runtime.Info, error) {
	if a, ok := r.fresh(); ok {
		resp, err := r.status(ctx, false)
		if err != nil {
			return runtime.Info{}, err
		}
		// The call may have reconnected, to whatever stands there now.
		if _, ok := r.fresh(); ok {
			return sanitize.Clean(r.info(a, resp)), nil
		}
	}
	a, err := r.version(ctx)
	if err != nil {
		return runtime.Info{}, err
	}
	// A verbose status carries the whole configuration, some 10 kB.
	resp, err := r.status(ctx, true)
	if err != nil {
		return runtime.Info{}, err
	}
	if a.sandboxImage = sandboxImage(resp.GetInfo()); a.sandboxImage == "" {
		if a.sandboxImage, err = r.sandboxImageInUse(ctx); err != nil {
			return runtime.Info{}, err
		}
	}
	a.askedAt = time.Now()
	r.aboutMu.Lock()
	r.about = a
	r.aboutMu.Unlock()
	return sanitize.Clean(r.info(a, resp)), nil
}

func (r *Runtime) info(a about, resp *criapi.StatusResponse) runtime.Info {
	info := runtime.Info{Name: a.name, Version: a.version, Endpoint: r.Endpoint(), SandboxImage: a.sandboxImage}
	conditions(&info, resp.GetStatus().GetConditions())
	return info
}

func (r *Runtime) status(ctx context.Context, verbose bool) (*criapi.StatusResponse, error) {
	var resp *criapi.StatusResponse
	err := r.call(ctx, "Status", "get runtime status", r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = r.cri.Status(ctx, &criapi.StatusRequest{Verbose: verbose})
		return err
	})
	if err != nil {
		return nil, err
	}
	if resp.GetStatus() == nil {
		return nil, fmt.Errorf("get runtime status: %w: no status in it", runtime.ErrInvalidAnswer)
	}
	return resp, nil
}

func (r *Runtime) version(ctx context.Context) (about, error) {
	var resp *criapi.VersionResponse
	err := r.call(ctx, "Version", "get runtime version", r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = r.cri.Version(ctx, &criapi.VersionRequest{})
		return err
	})
	if err != nil {
		return about{}, err
	}
	if resp.GetRuntimeName() == "" {
		return about{}, fmt.Errorf("get runtime version: %w: no name in it", runtime.ErrInvalidAnswer)
	}
	return about{
		dials:   r.dials.Load(),
		name:    resp.GetRuntimeName(),
		version: strings.TrimPrefix(resp.GetRuntimeVersion(), "v"),
	}, nil
}

// conditions fills in readiness. Conditions beyond the two that CRI requires
// are warnings, such as containerd's ContainerdHasNoDeprecationWarnings.
func conditions(info *runtime.Info, list []*criapi.RuntimeCondition) {
	info.Message = "the runtime does not report " + criapi.RuntimeReady
	info.NetworkMessage = "the runtime does not report " + criapi.NetworkReady
	var warnings []string
	for _, c := range list {
		switch c.GetType() {
		case criapi.RuntimeReady:
			info.Ready, info.Message = c.GetStatus(), explain(c)
		case criapi.NetworkReady:
			info.NetworkReady, info.NetworkMessage = c.GetStatus(), explain(c)
		default:
			if !c.GetStatus() {
				warnings = append(warnings, explain(c))
			}
		}
	}
	if len(warnings) > 0 && info.Ready {
		info.Message = strings.Join(warnings, "; ")
	}
}

// explain says why a condition does not hold; nothing if it does.
func explain(c *criapi.RuntimeCondition) string {
	if c.GetStatus() {
		return ""
	}
	reason := c.GetReason()
	if reason == "" {
		reason = c.GetType() + " is false"
	}
	if c.GetMessage() == "" {
		return reason
	}
	return reason + ": " + c.GetMessage()
}

// sandboxImage finds the sandbox image in a verbose status. containerd 1,
// CRI-O and cri-dockerd put it into the JSON object under "config", which kubeadm
// reads as well. containerd 2 does not tell it any more, but pins it:
// https://github.com/kubernetes/kubeadm/issues/3146.
func sandboxImage(info map[string]string) string {
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if err := json.Unmarshal([]byte(info["config"]), &config); err != nil {
		return ""
	}
	return fullReference(config.SandboxImage)
}

// sandboxImageInUse asks the youngest sandbox what it is made from, where the
// runtime does not report what the next one will be; containerd 2 is like that. It
// is empty where there is no sandbox, or none that reports it.
func (r *Runtime) sandboxImageInUse(ctx context.Context) (string, error) {
	var list *criapi.ListPodSandboxResponse
	err := r.call(ctx, "ListPodSandbox", "list sandboxes", r.timeouts.Query, func(ctx context.Context) (err error) {
		list, err = r.cri.ListPodSandbox(ctx, &criapi.ListPodSandboxRequest{})
		return err
	})
	if err != nil {
		return "", err
	}
	if len(list.GetItems()) == 0 {
		return "", nil
	}
	youngest := slices.MaxFunc(list.GetItems(), func(a, b *criapi.PodSandbox) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	var resp *criapi.PodSandboxStatusResponse
	err = r.call(ctx, "PodSandboxStatus", "get status of "+local.Named("sandbox", youngest.GetMetadata().GetName(), youngest.GetId()), r.timeouts.Query,
		func(ctx context.Context) (err error) {
			resp, err = r.cri.PodSandboxStatus(ctx, &criapi.PodSandboxStatusRequest{PodSandboxId: youngest.GetId(), Verbose: true})
			return err
		})
	if errors.Is(err, runtime.ErrUnavailable) {
		return "", err
	}
	// One that is gone meanwhile, or cannot be read, reports nothing.
	var info struct {
		Image string `json:"image"`
	}
	if err != nil || json.Unmarshal([]byte(resp.GetInfo()["info"]), &info) != nil {
		return "", nil
	}
	if isImageID(info.Image) {
		return info.Image, nil
	}
	return fullReference(info.Image), nil
}

// fullReference writes a reference as image lists do: with its registry, and
// with a tag or a digest. A configuration may say "busybox" and mean
// docker.io/library/busybox:latest.
func fullReference(ref string) string {
	if ref == "" {
		return ""
	}
	ref = withRegistry(ref)
	name, digest, hasDigest := strings.Cut(ref, "@")
	tagAt := strings.LastIndex(name, ":")
	hasTag := tagAt > strings.LastIndex(name, "/")
	switch {
	case hasDigest && hasTag:
		return name[:tagAt] + "@" + digest
	case hasDigest || hasTag:
		return ref
	}
	return ref + ":latest"
}

// withRegistry is the reference with its registry, as CRI lists it; nothing else is added.
func withRegistry(ref string) string {
	host, rest, found := strings.Cut(ref, "/")
	if found && host == "index.docker.io" {
		host = "docker.io"
	}
	switch {
	case !found:
		return "docker.io/library/" + ref
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		return "docker.io/" + ref
	case host == "docker.io" && !strings.Contains(rest, "/"):
		return "docker.io/library/" + rest
	}
	return host + "/" + rest
}
