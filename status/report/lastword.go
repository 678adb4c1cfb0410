package report

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// keyLastWord is where the store keeps it.
const keyLastWord = "last-word"

// lastWord is the status that a Node should have had when its host went down.
type lastWord struct {
	Boot   string            `json:"boot"` // that ended with it
	Status corev1.NodeStatus `json:"status"`
}

// keep notes the status of a host that goes down, in case that the control plane
// does not take it in time: the next boot delivers it.
func (r *Reporter) keep(status corev1.NodeStatus) {
	value, err := json.Marshal(lastWord{r.o.Boot, status})
	if err == nil {
		err = r.o.Store.Write(map[string][]byte{keyLastWord: value}, nil)
	}
	if err != nil {
		r.o.Log.Warn("the last word of this boot is not kept", "error", err)
		return
	}
	r.kept = true
}

// secure returns when what is kept is on the disk, before the control plane is
// asked, which may take all the time that there is. A disk that hangs does not take
// it either: Farewell tries it once more at the end.
func (r *Reporter) secure(ctx context.Context) {
	if r.o.Flush == nil {
		return
	}
	if deadline, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/3)
		defer cancel()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.o.Flush() // told by the state's health
	}()
	select {
	case <-done:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return // by a later word
		}
		r.o.Log.Warn("the disk does not take what is kept of this shutdown; the control plane is told first")
	}
}

// forget takes the last word away, which a later one has followed.
func (r *Reporter) forget() {
	if !r.kept {
		return
	}
	if err := r.o.Store.Write(nil, []string{keyLastWord}); err == nil {
		r.kept = false
	}
}

// recall reads what an earlier boot could not deliver. What this boot kept is
// followed by a later word in any case.
func (r *Reporter) recall() {
	values, err := r.o.Store.Load()
	if err != nil {
		r.o.Log.Warn("whether the last boot left something to tell is not known", "error", err)
		return
	}
	value, found := values[keyLastWord]
	if !found {
		return
	}
	r.kept = true
	var word lastWord
	if err := json.Unmarshal(value, &word); err != nil {
		r.o.Log.Warn("the last word of an earlier boot cannot be read", "error", err)
		return
	}
	if word.Boot != r.o.Boot {
		r.lastWord = &word.Status
	}
}
