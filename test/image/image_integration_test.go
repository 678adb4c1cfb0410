//go:build integration

package image_test

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/packages"
)

const (
	// builtVariable is the folder of the images. They are built outside the lab, which has no network.
	builtVariable = "HOSTLER_IMAGES_BUILT"
	// name is the name of the image: a tag must not have a +.
	name = "hostler.io/hostler-server:0.1.0-dev.42_g0123456789ab"
	// patience limits every wait. Only an error makes a wait that long.
	patience = 5 * time.Minute

	first, second = lab.Dir + "/first.tar", lab.Dir + "/second.tar" // images from two separate builds
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx, log := context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil))
	if os.Getenv(builtVariable) == "" {
		if err := errors.Join(etcd.Prepare(ctx, log), build(ctx)); err != nil {
			return 1, err
		}
	}
	if _, err := lab.Enter(ctx, lab.Options{Log: log, Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers}}}); err != nil {
		return 1, errors.Join(err, os.RemoveAll(os.Getenv(builtVariable)))
	}
	if err := lab.Take(os.Getenv(builtVariable), first, second); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// build builds the image twice: for all architectures, and for this one in another folder with
// another umask, time zone and language.
func build(ctx context.Context) error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hostler-image-")
	if err != nil {
		return err
	}
	for _, b := range []struct {
		to, folder, umask string
		environ           []string
	}{
		{first, "one", "022", nil},
		{second, "another/place", "077", []string{"ARCHITECTURES=" + goruntime.GOARCH, "TZ=Pacific/Kiritimati", "LANG=tr_TR.UTF-8", "HOSTNAME=another"}},
	} {
		if err != nil {
			break
		}
		var made string
		if made, err = packages.Image(ctx, root, filepath.Join(dir, b.folder), b.umask, b.environ...); err == nil {
			err = os.Rename(filepath.Join(made, "hostler-server_"+packages.Version+".oci.tar"), filepath.Join(dir, filepath.Base(b.to)))
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, b.folder)))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return os.Setenv(builtVariable, dir)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files returns the files of an archive, by name.
func files(t *testing.T, path string) map[string][]byte {
	t.Helper()
	file, err := os.Open(path)
	check(t, err)
	defer file.Close()
	all := map[string][]byte{}
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if err == io.EOF {
			return all
		}
		check(t, err)
		all[header.Name], err = io.ReadAll(r)
		check(t, err)
	}
}

// descriptor describes a blob in an index or a manifest.
type descriptor struct {
	Digest   string
	Platform struct{ OS, Architecture string }
}

// image is an image in an archive: its configuration, and its layers' digests.
type image struct {
	digest string
	config struct {
		Config struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
	}
	layers []descriptor
}

// images returns the images of an archive, by architecture.
func images(t *testing.T, archive map[string][]byte) map[string]image {
	t.Helper()
	read := func(text []byte, into any) {
		t.Helper()
		check(t, json.Unmarshal(text, into))
	}
	blob := func(d descriptor) []byte { return archive["blobs/"+strings.Replace(d.Digest, ":", "/", 1)] }
	var root, index struct{ Manifests []descriptor }
	read(archive["index.json"], &root)
	read(blob(root.Manifests[0]), &index)
	all := map[string]image{}
	for _, m := range index.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		read(blob(m), &manifest)
		i := image{digest: m.Digest, layers: manifest.Layers}
		read(blob(manifest.Config), &i.config)
		all[m.Platform.OS+"/"+m.Platform.Architecture] = i
	}
	return all
}

func TestTwoImagesOfOneCommitAreTheSame(t *testing.T) {
	one, two := images(t, files(t, first)), images(t, files(t, second))
	own := "linux/" + goruntime.GOARCH
	if len(one) != 2 || one["linux/amd64"].digest == "" || one["linux/arm64"].digest == "" || len(two) != 1 {
		t.Fatalf("images = %v and %v, want those of amd64 and arm64, and that of %s", one, two, own)
	}
	if one[own].digest != two[own].digest {
		t.Errorf("the image of %s is %+v, then %+v", own, one[own], two[own])
	}
	for platform, i := range one {
		c := i.config.Config
		if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/hostler", "server", "--config", "/etc/hostler/server.yaml"}) || c.Labels["org.opencontainers.image.version"] != packages.Version || len(i.layers) != 1 {
			t.Errorf("the image of %s has %+v and %d layers", platform, c, len(i.layers))
		}
	}
}

func TestTheImageRuns(t *testing.T) {
	fleet := etcd.For(t, etcd.Options{})
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	ctr := func(args ...string) *exec.Cmd {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		return exec.CommandContext(ctx, lab.In(t).Tools.Ctr.Path, append([]string{"--address", strings.TrimPrefix(c.Endpoint, "unix://")}, args...)...)
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := ctr(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("ctr %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	must("images", "import", "--snapshotter", c.Snapshotter, first)
	folder := t.TempDir()
	settings := filepath.Join(folder, "server.yaml")
	check(t, os.WriteFile(settings, fmt.Appendf(nil, "store: {type: etcd, etcd: {endpoints: [%s]}}\nmetrics: {listen: \"\"}\n", strings.Join(fleet.Endpoints(), ", ")), 0o644))
	must("run", "--detach", "--net-host", "--read-only", "--snapshotter", c.Snapshotter,
		"--log-uri", "file://"+filepath.Join(folder, "log"),
		"--mount", "type=bind,src="+settings+",dst=/etc/hostler/server.yaml,options=rbind:ro",
		"--mount", "type=tmpfs,src=tmpfs,dst=/run/hostler-server,options=mode=0777",
		name, "server")
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(folder, "log"))
			t.Logf("log of the server:\n%s", log)
		}
	})
	var status answer.Status
	leads := func() bool {
		return slices.ContainsFunc(status.Controllers, func(c answer.Controller) bool { return c.State == answer.Leading })
	}
	var out []byte
	var err error
	for deadline := time.Now().Add(patience); !leads(); {
		if time.Now().After(deadline) {
			t.Fatalf("the server does not lead: %v\n%s", err, out)
		}
		if out, err = ctr("tasks", "exec", "--exec-id", fmt.Sprint(time.Now().UnixNano()), "--user", "65532:65532", "server", "/usr/bin/hostler", "fleet", "status", "-o", "json").Output(); err == nil {
			check(t, json.Unmarshal(out, &status))
		}
	}
	if status.Version != packages.Version {
		t.Errorf("version = %q, want %q", status.Version, packages.Version)
	}
	pid := strings.Fields(must("tasks", "ls"))[4]
	state, err := os.ReadFile("/proc/" + pid + "/status")
	check(t, err)
	for _, want := range []string{"Uid:\t65532\t65532", "Gid:\t65532\t65532", "CapEff:\t0000000000000000"} {
		if !strings.Contains(string(state), want) {
			t.Errorf("the process lacks %q:\n%s", want, state)
		}
	}
	must("tasks", "kill", "--signal", "SIGTERM", "server")
	for deadline := time.Now().Add(patience); !strings.Contains(must("tasks", "ls"), "STOPPED"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server does not stop")
		}
	}
	must("tasks", "rm", "server") // its exit code is the server's
	must("containers", "rm", "server")
}
