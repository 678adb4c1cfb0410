package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/sanitize"
)

var _ store.Evicter = (*Fleet)(nil)

// disruptionBudget is the cause of a refusal: policy/v1.DisruptionBudgetCause.
const disruptionBudget metav1.CauseType = "DisruptionBudget"

// pageOfPods is the number of pods in a page.
const pageOfPods = 500

// Evict implements store.Evicter.
func (f *Fleet) Evict(ctx context.Context, name string, uid types.UID, term store.Term) error {
	kind := store.Pods(false)
	ctx, cancel, operation, err := startCall(ctx, "evict", kind, name)
	if err != nil {
		return err
	}
	defer cancel()
	ctx, stop, err := f.within(ctx, term)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	defer stop()
	namespace, own, _ := strings.Cut(name, "/")
	body, err := json.Marshal(map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata":      map[string]any{"name": own, "namespace": namespace},
		"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": uid}},
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", operation, controlplane.ErrInvalid, err)
	}
	_, err = f.client.core.do(ctx, func(r rest.Interface) *rest.Request {
		return at(kind, r.Post(), name).SubResource("eviction").SetHeader("Content-Type", "application/json").Body(body)
	})
	if blocked := blockedBy(err); blocked != nil {
		return fmt.Errorf("%s: %w", operation, blocked)
	}
	return f.client.fault(ctx, operation, err)
}

// blockedBy returns the refusal of an eviction because of a PodDisruptionBudget; nil for other
// errors. An overloaded API server also answers 429, but then names no budget as the cause.
func blockedBy(err error) *store.BlockedError {
	status, answered := errors.AsType[*apierrors.StatusError](err)
	if !answered || status.ErrStatus.Code != http.StatusTooManyRequests || status.ErrStatus.Details == nil {
		return nil
	}
	for _, cause := range status.ErrStatus.Details.Causes {
		if cause.Type == disruptionBudget {
			return &store.BlockedError{Message: sanitize.Line(cause.Message, maxMessage)}
		}
	}
	return nil
}

// PodsOn implements store.Evicter.
func (f *Fleet) PodsOn(ctx context.Context, node string) ([]metav1.Object, error) {
	operation := fmt.Sprintf("list pods of node %q", node)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", operation, context.Cause(ctx))
	}
	selector := fmt.Sprintf("spec.nodeName=%s,status.phase!=%s,status.phase!=%s", node, corev1.PodSucceeded, corev1.PodFailed)
	var pods []metav1.Object
	err := f.client.eachMetadata(ctx, operation, f.client.core, pageOfPods, func(r rest.Interface) *rest.Request {
		return r.Get().Resource("pods").Param("fieldSelector", selector).SetHeader("Accept", partialMetadata)
	}, func(pod *metav1.PartialObjectMetadata) error {
		pods = append(pods, pod)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pods, nil
}
