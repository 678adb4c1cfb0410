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

// aboutAge is how long data about the runtime stays valid on one connection. CRI-O applies a new
// pause image on SIGHUP, which breaks no connection.
const aboutAge = 10 * time.Minute

// about has data that changes only with the runtime's process or configuration.
type about struct {
	dials        uint64 // the connection on which it was requested
	askedAt      time.Time
	name         string // the runtime's own name: containerd, cri-o, docker
	version      string
	sandboxImage string
}

// fresh returns the known data, and whether it is still valid.
func (r *Runtime) fresh() (about, bool) {
	r.aboutMu.Lock()
	defer r.aboutMu.Unlock()
	a := r.about
	return a, !a.askedAt.IsZero() && a.dials == r.dials.Load() && time.Since(a.askedAt) < aboutAge
}

// Info requests the runtime's status. It takes one call, or two or three on a new connection. Name
// in the result is the runtime's own name, such as "containerd".
func (r *Runtime) Info(ctx context.Context) (runtime.Info, error) {
	if a, ok := r.fresh(); ok {
		resp, err := r.status(ctx, false)
		if err != nil {
			return runtime.Info{}, err
		}
		// The call may have connected again, to another process.
		if _, ok := r.fresh(); ok {
			return sanitize.Clean(r.info(a, resp)), nil
		}
	}
	a, err := r.version(ctx)
	if err != nil {
		return runtime.Info{}, err
	}
	// A verbose status includes the whole configuration, about 10 kB.
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

// conditions sets readiness. Conditions other than the two that CRI requires are warnings, such as
// containerd's ContainerdHasNoDeprecationWarnings.
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

// explain returns why a condition is not true, or "" if it is.
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

// sandboxImage returns the sandbox image from a verbose status. containerd 1, CRI-O and cri-dockerd
// have it in the JSON object under "config", which kubeadm also reads. containerd 2 does not return
// it any more, but pins the image: https://github.com/kubernetes/kubeadm/issues/3146.
func sandboxImage(info map[string]string) string {
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if err := json.Unmarshal([]byte(info["config"]), &config); err != nil {
		return ""
	}
	return fullReference(config.SandboxImage)
}

// sandboxImageInUse returns the image of the youngest sandbox. It is for runtimes such as
// containerd 2 that do not report which image the next sandbox will use. It returns "" if there is
// no sandbox, or none that reports its image.
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
	// A sandbox that was removed meanwhile, or cannot be read, reports nothing.
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

// fullReference returns a reference in the form of image lists: with its registry, and with a tag
// or a digest. "busybox" in a configuration means docker.io/library/busybox:latest.
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

// withRegistry returns the reference with its registry, as CRI lists it. It adds nothing else.
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
