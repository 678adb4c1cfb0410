package store

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Evicter is a Store with pods that can be evicted as far as their PodDisruptionBudgets allow. Calls are
// like those of Store.
type Evicter interface {
	// Evict requests that a pod with this UID ends. It is no error if it ends already. A BlockedError
	// if it has to stay for now; ErrNotFound; ErrConflict if it has another UID; ErrDeposed.
	Evict(ctx context.Context, name string, uid types.UID, term Term) error
	// PodsOn reads the metadata of the pods on a Node that have not succeeded or failed. It is not older
	// than the call.
	PodsOn(ctx context.Context, node string) ([]metav1.Object, error)
}

// BlockedError means that a pod may not be evicted now.
type BlockedError struct {
	Message string // of the API server; it names the PodDisruptionBudget
}

// Error implements error.
func (e *BlockedError) Error() string { return e.Message }
