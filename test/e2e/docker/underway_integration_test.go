//go:build integration

package docker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/lab"
)

// eager collects images every second. Between two steps of a build, its images are in use by
// nothing, but are young.
const eager = "imageGC: {enabled: true, includeLocal: true, interval: 1s, highThresholdPercent: 1, lowThresholdPercent: 0, minimumAge: 5s}\n"

// kept is the label of an image that stays although it is unused.
var kept = map[string]string{"hostler.io/keep": "true"}

// collectedSince waits for a collection that has started and ended from now on, and for the removal
// of an unused image.
func (a *agent) collectedSince(t *testing.T, d *lab.Docker, unused string) {
	t.Helper()
	now := time.Now()
	a.await("images are collected", func(s api.Status) bool { return s.ImageGC.LastRun != nil && s.ImageGC.LastRun.StartedAt.After(now) })
	eventually(t, "what nobody uses is collected", func() bool {
		_, err := d.API.ImageInspect(t.Context(), unused)
		return err != nil
	})
}

// A pull in progress succeeds during collections, even of images with the same layers.
func TestAPullOfDockersUnderWayIsLeftAlone(t *testing.T) {
	d := lab.DockerFor(t, lab.DockerOptions{ImageFSBytes: 256 << 20})
	usualPlace(t, d)
	shared, err := lab.RandomLayer(4 << 20)
	check(t, err)
	last, err := lab.RandomLayer(1 << 20)
	check(t, err)
	unused, slow := d.Reference("shop/unused:1"), d.Reference("shop/slow:1")
	_, err = d.Pull(t.Context(), lab.ImageSpec{Names: []string{unused}, Layers: []lab.Layer{shared}})
	check(t, err)

	wanted, release, err := d.Registry.Hold(last)
	check(t, err)
	defer release()
	pulled := make(chan error, 1)
	go func() {
		_, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{slow}, Layers: []lab.Layer{shared, last}, Labels: kept})
		pulled <- err
	}()
	select {
	case <-wanted:
	case err := <-pulled:
		t.Fatalf("the pull ended before its last layer came: %v", err)
	}
	a := startAgent(t, eager)
	a.collectedSince(t, d, unused)
	release()
	check(t, <-pulled)
	_, err = d.Run(t.Context(), lab.DockerContainer{Name: "slow", Image: slow, Command: lab.ServeFor(0), Ready: "ready"})
	check(t, err)
}

// A build in progress succeeds during collections: its base images are in use.
func TestABuildOfDockersUnderWayIsLeftAlone(t *testing.T) {
	for name, builder := range map[string]build.BuilderVersion{"the classic builder": build.BuilderV1, "BuildKit": build.BuilderBuildKit} {
		t.Run(name, func(t *testing.T) {
			d := lab.DockerFor(t, lab.DockerOptions{ImageFSBytes: 256 << 20})
			usualPlace(t, d)
			const base = "localhost/shop/base:1"
			_, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{base}})
			check(t, err)
			own, err := lab.RandomLayer(4 << 20) // otherwise its removal would free nothing
			check(t, err)
			unused := d.Reference("shop/unused:1")
			_, err = d.Pull(t.Context(), lab.ImageSpec{Names: []string{unused}, Layers: []lab.Layer{own}})
			check(t, err)

			mark := fmt.Sprint("go-", time.Now().UnixNano())
			built := make(chan error, 1)
			go func() {
				built <- buildImage(t, d, builder, image, "FROM "+base+"\n"+
					"RUN echo one >/data/one\n"+
					"RUN until [ -e /tmp/"+mark+" ]; do sleep 1; done\n"+
					"RUN ls /data/one /tmp/"+mark+"\n"+
					"LABEL hostler.io/keep=true\n")
			}()
			var step string
			eventually(t, "the build is at the step that waits", func() bool {
				select {
				case err := <-built:
					t.Fatalf("the build ended before that: %v", err)
				default:
				}
				step = rootOf("until [ -e /tmp/" + mark)
				return step != ""
			})
			a := startAgent(t, eager)
			a.collectedSince(t, d, unused)
			a.end(syscall.SIGTERM) // the images between later steps are only as young as the machine is fast
			check(t, os.WriteFile(filepath.Join(step, "tmp", mark), nil, 0o644))
			check(t, <-built)
			_, err = d.Run(t.Context(), lab.DockerContainer{Name: "built", Image: image, Command: lab.ServeFor(0), Ready: "ready"})
			check(t, err)
		})
	}
}

// rootOf returns the root folder of a container's process, by a part of its command line; empty if
// there is none.
func rootOf(command string) string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(string(text), "/bin/sh\x00-c\x00") && strings.Contains(string(text), command) {
			return filepath.Join(filepath.Dir(file), "root")
		}
	}
	return ""
}

// buildImage builds an image from a Dockerfile that dockerd fetches.
func buildImage(t *testing.T, d *lab.Docker, builder build.BuilderVersion, tag, dockerfile string) error {
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, dockerfile) // if it fails, the build fails
	}))
	defer files.Close()
	reply, err := d.API.ImageBuild(t.Context(), nil, client.ImageBuildOptions{Version: builder, RemoteContext: files.URL + "/Dockerfile", Tags: []string{tag}, NetworkMode: "none", Remove: true})
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	var text []string
	for lines := json.NewDecoder(reply.Body); ; {
		var m jsonstream.Message
		switch err := lines.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.Error != nil:
			return fmt.Errorf("build: %w, after %q", m.Error, text)
		}
		text = append(text, m.Stream)
	}
}
