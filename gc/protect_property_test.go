package gc_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// FuzzProtection generates hosts on which many images are protected in ways that a list of pods
// does not show. It checks that no removal violates the protection, for any reason, threshold and
// request.
func FuzzProtection(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		facts, policy, options := generate(r, 1+r.IntN(60), 1+r.IntN(10))
		policy.Images.MaximumAge = policy.Images.MinimumAge + time.Duration(1+r.IntN(600))*time.Minute
		options.AllUnused = options.AllUnused && r.IntN(2) == 0
		if r.IntN(3) == 0 {
			options.LeaveAlone = []string{"docker"}
		}
		unmeasured := ""
		if r.IntN(4) == 0 { // as shortly after a boot
			facts.Filesystems[0].CapacityBytes, unmeasured = 0, facts.Filesystems[0].Name()
		}
		why := make(map[string]string)
		for i := range facts.Images {
			img := &facts.Images[i]
			switch r.IntN(8) {
			case 0:
				img.UsedBy, why[img.ID] = []string{"a pull"}, "it is being pulled"
			case 1:
				img.LabelsUnknown, why[img.ID] = true, "its labels are unknown"
			case 2:
				img.CreatedAt, why[img.ID] = ago(time.Duration(r.IntN(119))*time.Second), "the runtime says that it is new"
			case 3:
				img.Labels, why[img.ID] = map[string]string{runtime.LabelKeep: "true"}, "its label says keep"
			}
		}
		place := -1
		for i, img := range gc.Plan(facts, policy, now, options).Images {
			if kept := img.Action == gc.Keep && img.Reason != gc.BelowThreshold && img.Reason != gc.UnknownUsage; !kept && place != i-1 {
				t.Errorf("Plan() has %s, which may go, after one that may not", img.ID)
			} else if !kept {
				place = i
			}
			if img.Action == gc.Keep {
				continue
			}
			if reason := why[img.ID]; reason != "" {
				t.Errorf("Plan() removes %s (%s), although %s", img.ID, img.Reason, reason)
			}
			if len(options.LeaveAlone) > 0 && img.Runtime == "docker" {
				t.Errorf("Plan() removes %s of a runtime that is to be left alone", img.ID)
			}
			if img.Filesystem == unmeasured && unmeasured != "" && img.Reason != gc.AllUnused {
				t.Errorf("Plan() removes %s (%s) on a filesystem without figures", img.ID, img.Reason)
			}
			known, unused := now.Sub(img.FirstSeen), now.Sub(img.LastUsed)
			if img.Reason == gc.MaxAge && (known <= policy.Images.MaximumAge || !img.LastUsed.IsZero() && unused <= policy.Images.MaximumAge) {
				t.Errorf("Plan() removes %s for its age, seen for %s and unused for %s, want both above %s", img.ID, known, unused, policy.Images.MaximumAge)
			}
		}
	})
}

// FuzzReference checks that a normal form is stable, and that an image in use is found by any form
// of its name.
func FuzzReference(f *testing.F) {
	for _, ref := range []string{
		"nginx", "docker.io/nginx:1", "index.docker.io/a/b", "localhost:5000/app", "a/b@" + someDigest, someDigest,
		"quay.io/a/b:1@" + someDigest, "@", ":", "a:", "a@", "//", "docker.io/", "index.docker.io/index.docker.io/a",
	} {
		f.Add(ref)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		once := gc.NormalReference(ref)
		img := runtime.Image{Runtime: "r", ID: "sha256:x", Tags: []string{ref}}
		pods := []runtime.Pod{{Runtime: "r", Containers: []runtime.Container{{Runtime: "r", ID: "c", Image: ref}}}}
		if used, _ := gc.UsersOf(pods).First("r", gc.References(nil, &img)); ref != "" && used == nil {
			t.Errorf("a container of %q is not found to use an image of that name, which is %q in full", ref, once)
		}
		if isPlain(ref) {
			if again := gc.NormalReference(once); again != once {
				t.Errorf("NormalReference(%q) = %q, and of that %q, want it to stay", ref, once, again)
			}
		}
	})
}

// isPlain reports whether a reference is valid for a runtime.
func isPlain(ref string) bool {
	if ref == "" {
		return false
	}
	for i, c := range ref {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && i < len(ref)-1 && (c == '/' || c == '.' || c == '-') && ref[i-1] != '/' && ref[i+1] != '/':
		default:
			return false
		}
	}
	return true
}
