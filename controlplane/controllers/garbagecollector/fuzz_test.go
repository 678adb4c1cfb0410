package garbagecollector_test

import (
	"context"
	"errors"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// FuzzMetadata has a collector decide about objects that anybody may have written. Each write is judged by
// the model, and what cannot be read is never deleted.
func FuzzMetadata(f *testing.F) {
	owned := `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"1","ownerReferences":[{"apiVersion":"example.com/v1","kind":"Thing","name":"gone","uid":"2"}]}}`
	f.Add("things/a", []byte(owned), []byte(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"b","uid":"2"}}`))
	f.Add("things/n/a", []byte(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","namespace":"n","uid":"1","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["orphan","foregroundDeletion"],"ownerReferences":[{"apiVersion":"a/b/c","kind":"","name":"x/y","uid":""}]}}`), []byte(owned))
	f.Add("pods/h/n/a", []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n","deletionTimestamp":"2026-01-01T00:00:00Z"}}`), []byte(`{`))
	f.Add("things/a", []byte(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"1","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"h","uid":"3","blockOwnerDeletion":true},{"apiVersion":"v1","kind":"Pod","name":"p","uid":"4"},null]}}`), []byte(`{"metadata":{"name":1}}`))
	f.Fuzz(func(t *testing.T, name string, one, other []byte) {
		if strings.Trim(name, "/") != name || path.Clean(name) != name {
			t.Skip()
		}
		synctest.Test(t, func(t *testing.T) {
			s := memory.New(memory.Options{EndsLeases: true})
			ctx, stop := context.WithCancel(t.Context())
			j := &journal{kind: store.Objects, all: map[int64]change{}, seen: map[string]int64{}, unreadable: map[string]bool{}}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = s.Follow(ctx, store.Objects, store.AllChanges, j)
			}()
			s.PutRaw(store.Objects, "things/b", other)
			s.PutRaw(store.Objects, name, one)
			r := collect(t, s, "a")
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			for name := range j.unreadable {
				if _, err := s.Get(ctx, store.Objects, name); errors.Is(err, controlplane.ErrNotFound) {
					t.Errorf("%s was deleted, although it cannot be read", name)
				}
			}
			m := newModel(newClaims(), onEtcd)
			m.replay(j.all)
			for _, fault := range m.faults {
				t.Error(fault)
			}
			r.stop()
			stop()
			<-ended
		})
	})
}
