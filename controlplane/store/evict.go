package store

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Evicter is a Store with pods that can be evicted if their PodDisruptionBudgets allow it. The
// rules for calls are those of Store.
type Evicter interface {
	// Evict requests the end of the pod with this UID. It succeeds if the pod is ending already.
	// Errors: BlockedError if the pod must stay for now; ErrNotFound; ErrConflict if it has another
	// UID; ErrDeposed.
	Evict(ctx context.Context, name string, uid types.UID, term Term) error
	// PodsOn reads the metadata of the pods on a Node that have not succeeded or failed. The answer is
	// not older than the call.
	PodsOn(ctx context.Context, node string) ([]metav1.Object, error)
}

// BlockedError means that a pod may not be evicted now.
type BlockedError struct {
	Message string // the API server's; it names the PodDisruptionBudget
}

// Error implements error.
func (e *BlockedError) Error() string { return e.Message }
