package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/few"
	"hostler.io/hostler/internal/listen"
)

// policies has the cascades of `hostler fleet delete`.
func policies() map[string]metav1.DeletionPropagation {
	return map[string]metav1.DeletionPropagation{
		answer.Background: metav1.DeletePropagationBackground, answer.Foreground: metav1.DeletePropagationForeground, answer.Orphan: metav1.DeletePropagationOrphan,
	}
}

// deletionOf decodes a deletion request.
func (s *Server) deletionOf(r *http.Request) (answer.DeletionRequest, error) {
	var req answer.DeletionRequest
	if err := decode(r, &req); err != nil {
		return req, err
	}
	kind, name, _ := strings.Cut(req.Object, "/")
	state := s.stateOf(garbagecollector.Name)
	switch {
	case policies()[req.Cascade] == "":
		return req, refusal(http.StatusBadRequest, fmt.Sprintf("there is no cascade %q", req.Cascade), "use background, foreground or orphan")
	case kind == "" || name == "":
		return req, refusal(http.StatusBadRequest, fmt.Sprintf("%q is not KIND/NAME", req.Object), "use KIND/NAME as `hostler fleet get KIND` prints it")
	case !s.o.Store.EndsLeases():
		return req, refusal(http.StatusBadRequest, "objects of "+s.o.Store.Type()+" are not deleted here", "use `kubectl delete --cascade="+req.Cascade+"`")
	case state == answer.Disabled:
		return req, refusal(http.StatusBadRequest, "the "+garbagecollector.Name+" does not run on this server", "run this on a server that has it in `controllers`")
	}
	return req, nil
}

// planDeletion answers with the plan of a deletion.
func (s *Server) planDeletion(o *reader) func(r *http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		req, err := s.deletionOf(r)
		if err != nil {
			return nil, err
		}
		key := keyOf(req.Object)
		tree, err := s.tree(r.Context(), o, key, policies()[req.Cascade])
		if errors.Is(err, store.ErrUnreadable) {
			return planUnreadable(req, err)
		}
		if err != nil {
			return nil, o.explain(r.Context(), req.Object, err)
		}
		d := answer.Deletion{DeletionRequest: req, Warnings: []string{}}
		d.UID, d.Version = clean(string(tree.UID)), tree.Version
		alive := false
		for _, b := range tree.Branches {
			d.Objects = append(d.Objects, answer.Branch{Object: clean(b.String()), Depth: b.Depth, Fate: string(b.Fate), Note: clean(b.Note)})
			alive = alive || b.Key == garbagecollector.Key{Kind: store.Leases.Name, Name: key.Name}
		}
		if warning := returns(key, alive); warning != "" {
			d.Warnings = append(d.Warnings, clean(warning))
		}
		if key.Kind == store.Nodes.Name {
			held, err := s.slotsOf(r.Context(), o, key.Name)
			if err != nil {
				return nil, err
			}
			d.Warnings = append(d.Warnings, held...)
		}
		if len(tree.Unreadable) > 0 {
			d.Warnings = append(d.Warnings, clean(unread(tree.Unreadable, req.Cascade)))
		}
		return d, nil
	}
}

// tree returns what a deletion does, in the caller's turn: meanwhile the collector takes in no changes.
func (s *Server) tree(ctx context.Context, o *reader, key garbagecollector.Key, policy metav1.DeletionPropagation) (garbagecollector.Tree, error) {
	release, err := o.turns.Take(ctx)
	if err != nil {
		return garbagecollector.Tree{}, err
	}
	defer release()
	return s.garbage.Tree(ctx, key, policy)
}

// planUnreadable returns the plan for an object that cannot be read.
func planUnreadable(req answer.DeletionRequest, why error) (any, error) {
	if req.Cascade != answer.Background {
		return nil, refusal(http.StatusBadRequest, fmt.Sprintf("%s cannot be read, so its dependents are not known: %s", req.Object, whyUnreadable(why)), "fix it in the store, or use `--cascade="+answer.Background+"`")
	}
	req.UID, req.Version, req.Unreadable = "", "", true
	return answer.Deletion{
		DeletionRequest: req, Objects: []answer.Branch{{Object: clean(req.Object), Fate: string(garbagecollector.Deleted), Note: clean("cannot be read: " + whyUnreadable(why))}},
		Warnings: []string{"its finalizers are ignored, and the objects that it owns are deleted, too: neither can be read"},
	}, nil
}

// unread says what a deletion does with objects that cannot be read.
func unread(objects []garbagecollector.Key, cascade string) string {
	var names []string
	for _, o := range objects {
		names = append(names, o.String())
	}
	text := "objects that cannot be read may be dependents, too: " + few.Names(names, 3)
	if cascade == answer.Orphan {
		text += "; the deletion waits until they are fixed or deleted"
	}
	return text
}

// returns says which program creates the object again after its deletion; empty if none is known.
func returns(key garbagecollector.Key, alive bool) string {
	switch {
	case key.Kind == store.Nodes.Name && alive:
		return "the host is alive: its agent registers the Node again. To remove the host, run `hostler leave` there"
	case key.Kind == store.Leases.Name:
		return "the server counts the host as dead until its agent creates the Lease again"
	case key.Kind == store.Objects.Name && strings.HasPrefix(key.Name, store.Pods(true).Name+"/"):
		return "this stops no pod: its host stores the object again within ten minutes while the pod runs"
	}
	return ""
}

// requestDeletion requests the deletion of an object that was planned.
func (s *Server) requestDeletion(o *reader) func(r *http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		req, err := s.deletionOf(r)
		if err != nil {
			return nil, err
		}
		key := keyOf(req.Object)
		pre, policy := store.Preconditions{UID: types.UID(req.UID), Version: req.Version}, policies()[req.Cascade]
		if req.Unreadable {
			pre, policy = store.Preconditions{Unreadable: true}, ""
		}
		if err := s.delete(r.Context(), key, pre, policy); err != nil {
			return nil, o.explain(r.Context(), req.Object, err)
		}
		s.o.Log.Info("deletion requested", "object", clean(req.Object), "cascade", req.Cascade, "by", listen.UserOf(r.Context()))
		return answer.Deletion{DeletionRequest: req, Requested: true, Objects: []answer.Branch{}, Warnings: []string{}}, nil
	}
}

// deletionTries bounds the attempts to delete an object that its host changes all the time.
const deletionTries = 100

// delete requests a deletion. What a host writes is deleted in any version and with any UID, and also if it cannot be
// read by then: else a host could prevent that.
func (s *Server) delete(ctx context.Context, key garbagecollector.Key, pre store.Preconditions, policy metav1.DeletionPropagation) (err error) {
	kind, tries := kindOf(key.Kind), 1
	own := kind.ByHost(key.Name)
	if own {
		pre.Version, pre.UID, tries = "", "", deletionTries
	}
	for range tries {
		err = s.o.Store.Delete(ctx, kind, key.Name, pre, policy)
		switch {
		case ctx.Err() != nil:
			return err
		case own && errors.Is(err, store.ErrUnreadable) && policy == metav1.DeletePropagationBackground:
			pre, policy = store.Preconditions{Unreadable: true}, ""
		case own && errors.Is(err, controlplane.ErrConflict) && pre.Unreadable:
			pre, policy = store.Preconditions{}, metav1.DeletePropagationBackground
		case !errors.Is(err, controlplane.ErrConflict):
			return err
		}
	}
	return err
}
