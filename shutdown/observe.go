package shutdown

import (
	"cmp"
	"context"
	"slices"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// survey lists the pods once at the start, so that they are known even if a runtime hangs later.
// Observe updates the list.
func (g *Guard) survey(ctx context.Context) {
	var pauses backoff
	for ctx.Err() == nil {
		if _, ok := g.roster.Last(); ok {
			return
		}
		list, cancel := context.WithTimeout(ctx, listBound)
		pods, err := g.roster.List(list)
		cancel()
		if err == nil {
			g.mark(pods)
			return
		}
		_ = bounded.Sleep(ctx, pauses.next(surveyPause))
	}
}

// Observe passes a complete list of pods to the guard. If a runtime hangs, a drain uses this list.
// After a power failure, the next boot reports it.
func (g *Guard) Observe(pods []runtime.Pod) {
	g.roster.Set(pods)
	g.mark(pods)
}

// mark records in the journal which pods run, for the next boot.
func (g *Guard) mark(pods []runtime.Pod) {
	switch g.options.Board.Status().State {
	case Draining, Released, Delegated:
		return
	}
	refs := []journal.Ref{}
	for _, p := range pods {
		if plan.Runs(p) {
			ref := journal.Ref{Runtime: p.Runtime, ID: p.ID, Namespace: p.Namespace, Name: p.Name}
			if p.UID != p.ID {
				ref.UID = p.UID
			}
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b journal.Ref) int {
		return cmp.Or(cmp.Compare(a.Runtime, b.Runtime), cmp.Compare(a.ID, b.ID))
	})
	g.options.Journal.Mark(refs)
}

// Change records that pods were started or removed since the last Observe. If a shutdown begins
// before the next Observe, it lists the pods again.
func (g *Guard) Change() { g.roster.Change() }
