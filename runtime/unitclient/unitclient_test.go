package unitclient

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// shop are Compose's labels of a container of the project in /srv/shop.
var shop = map[string]string{labelProject: "shop", labelDir: "/srv/shop", labelFiles: "/srv/shop/compose.yml"}

func TestRuns(t *testing.T) {
	for name, test := range map[string]struct {
		command string
		env     map[string]string
		dir     string // "/srv/shop" if empty
		labels  map[string]string
		want    bool
	}{
		"run":                                    {command: "/usr/bin/docker run --rm --name web -p 80:80 nginx", want: true},
		"run, joined":                            {command: "docker run --name=web nginx", want: true},
		"run by an interpreter's script":         {command: "python3 /usr/bin/docker run --name web nginx", want: true},
		"container run":                          {command: "docker container run --name web nginx", want: true},
		"run with options of docker's":           {command: "docker -H unix:///run/docker.sock --context run2 run --name web nginx", want: true},
		"run of another":                         {command: "docker run --name db postgres", want: false},
		"run whose command says the name":        {command: "docker run --name probe alpine ping web", want: false},
		"run that writes the ID into a file":     {command: "docker run --cidfile run/web.cid nginx", want: true},
		"run without a name":                     {command: "docker run --rm nginx", want: false},
		"podman run":                             {command: "/usr/bin/podman run --name web nginx", want: true},
		"start":                                  {command: "docker start --attach web", want: true},
		"start with standard input":              {command: "docker start -ai web", want: true},
		"start that does not stay":               {command: "docker start web", want: false},
		"start by ID":                            {command: "docker start -a " + id[:12], want: true},
		"start by the whole ID":                  {command: "docker start -a " + id, want: true},
		"start by too little of the ID":          {command: "docker start -a " + id[:4], want: false},
		"attach":                                 {command: "docker attach web", want: true},
		"wait":                                   {command: "docker wait web", want: true},
		"logs":                                   {command: "docker logs -f web", want: false},
		"exec":                                   {command: "docker exec web start web", want: false},
		"stop":                                   {command: "docker stop web", want: false},
		"runc run":                               {command: "runc --root /run/runc run --bundle /srv/web web", want: true},
		"runc run of another":                    {command: "runc run --bundle web other", want: false},
		"crun without an ID":                     {command: "crun run", want: false},
		"another program":                        {command: "/usr/bin/tail -f web", want: false},
		"compose in the project's folder":        {command: "docker compose up", labels: shop, want: true},
		"compose below it":                       {command: "docker compose up", dir: "/srv/shop/bin", labels: shop, want: true},
		"compose in another project below it":    {command: "docker compose up", dir: "/srv/shop/blog", labels: shop, want: false},
		"compose, and labels of any folder":      {command: "docker compose up", dir: "/srv/blog", labels: map[string]string{labelProject: "x", labelDir: "/"}, want: false},
		"compose, and a container of its image":  {command: "docker compose -p shop up", labels: map[string]string{labelProject: "shop"}, want: false},
		"compose in a folder named alike":        {command: "docker compose up", dir: "/srv/shop2", labels: shop, want: false},
		"compose elsewhere":                      {command: "docker compose up", dir: "/srv/blog", labels: shop, want: false},
		"compose with a file":                    {command: "docker compose -f ../shop/compose.yml up", dir: "/srv/blog", labels: shop, want: true},
		"compose with the file of another":       {command: "docker compose --file=/srv/blog/compose.yml up", labels: shop, want: false},
		"compose with a file from the variable":  {command: "docker compose up", dir: "/", env: map[string]string{"COMPOSE_FILE": "/srv/shop/compose.yml"}, labels: shop, want: true},
		"compose with the project's name":        {command: "docker-compose -p shop up", dir: "/", labels: shop, want: true},
		"compose with the name of another":       {command: "docker-compose --project-name=blog up", labels: shop, want: false},
		"compose with the name in the variable":  {command: "docker-compose up", dir: "/", env: map[string]string{"COMPOSE_PROJECT_NAME": "shop"}, labels: shop, want: true},
		"compose with a folder":                  {command: "docker compose --project-directory /srv/shop up web", dir: "/", labels: shop, want: true},
		"compose as a plugin":                    {command: "/usr/libexec/docker/cli-plugins/docker-compose compose -p shop up", dir: "/", labels: shop, want: true},
		"compose down":                           {command: "docker compose down", labels: shop, want: false},
		"compose, and a container of no project": {command: "docker compose up", want: false},
		"podman-compose":                         {command: "python3 /usr/bin/podman-compose up", labels: shop, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := test.dir
			if dir == "" {
				dir = "/srv/shop"
			}
			client, ok := parse(process{
				args: strings.Fields(test.command), dir: dir,
				env: func(name string) string { return test.env[name] },
				read: func(path string, _ fileReader) string {
					return map[string]string{
						"/srv/shop/run/web.cid": id + "\n", "/srv/shop/compose.yml": "name: shop", "/srv/shop/blog/docker-compose.yaml": "name: blog",
					}[path]
				},
			})
			if got := ok && client.Runs("web", id, test.labels); got != test.want {
				t.Errorf("%q runs the container: %t, want %t (%+v)", test.command, got, test.want, client)
			}
		})
	}
}

func TestWhichClientsPassSignalsOn(t *testing.T) {
	for command, want := range map[string]bool{
		"docker run --name web nginx": true, "docker start -a web": true, "docker attach web": true, "podman run --name=web nginx": true,
		"docker run -it --name web nginx": false, "docker run --tty --name web nginx": false, "docker run --sig-proxy=false --name web nginx": false,
		"docker start -a web db": false, "docker wait web": false, "docker compose up": false, "runc run web": false,
	} {
		if client, ok := parse(process{args: strings.Fields(command), dir: "/", env: func(string) string { return "" }, read: func(string, fileReader) string { return "" }}); !ok || client.PassesOn != want {
			t.Errorf("%q passes signals on: %t, want %t", command, client.PassesOn, want)
		}
	}
}

func TestFind(t *testing.T) {
	root, socket := t.TempDir(), filepath.Join(t.TempDir(), "docker.sock")
	if err := errors.Join(os.WriteFile(socket, nil, 0o600), os.Chmod(socket, 0o660)); err != nil {
		t.Fatal(err)
	}
	groups := map[string]int{"4000": os.Getegid(), "4001": 4002, "0": 0} // those of user 4000 may write to the socket
	add := func(pid, uid, command, service string) {
		folder := filepath.Join(root, pid)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"cmdline": strings.ReplaceAll(command, " ", "\x00") + "\x00",
			"cgroup":  "0::/system.slice/" + service + "\n",
			"status":  "Uid:\t" + strings.Repeat(uid+"\t", 4) + "\n" + fmt.Sprintf("Groups:\t%d\n", groups[uid]),
			"comm":    "docker\n",
			"environ": "A=1\x00COMPOSE_PROJECT_NAME=shop\x00",
		} {
			if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for link, to := range map[string]string{"cwd": "/srv", "exe": "/bin/sh"} { // owned by root
			if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
				t.Fatal(err)
			}
		}
	}
	add("7", "0", "docker run --name web nginx", "web.service")
	add("8", "4000", "docker compose up", "shop.service")
	add("9", "0", "docker run --name db postgres", "session-1.scope")
	add("10", "0", "sleep 9", "sleep.service")
	add("11", "4000", "docker run --name db postgres", "cron.service")         // a user's job
	add("13", "0", "docker start --attach db", "pod.service/libpod-payload-1") // a container's process
	add("14", "4001", "docker run --name db postgres", "cron.service")
	for _, pid := range []string{"9", "13", "14"} { // a read of their memory does not return
		path := filepath.Join(root, pid, "cmdline")
		if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
		writer, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
	}
	clients, err := Find(t.Context(), NewFiles(), root, socket, func(pid int) string {
		return map[int]string{8: "shop.service", 12: "cron.service"}[pid]
	})
	if err != nil || len(clients) != 2 {
		t.Fatalf("Find() = %+v, %v, want two", clients, err)
	}
	for _, c := range clients {
		if !c.Alive(root) {
			t.Errorf("%+v is not alive, want it so", c)
		}
		web, project := c.Runs("web", id, nil), c.Runs("x", id, shop)
		if web != (c.PID == 7 && c.Service == "web.service") || project != (c.PID == 8 && c.Service == "shop.service") {
			t.Errorf("%+v runs the container %t, the project %t", c, web, project)
		}
	}
	for _, c := range clients {
		if c.PassesOn != (c.PID == 7) {
			t.Errorf("%+v passes signals on: %t, want it of root's alone", c, c.PassesOn)
		}
	}
	gone := clients[0]
	if err := os.RemoveAll(filepath.Join(root, strconv.Itoa(gone.PID))); err != nil || gone.Alive(root) {
		t.Errorf("%+v is alive after its end (%v)", gone, err)
	}
}

// serviceOf returns a proc file system with process 7 of root's shop.service, which works in dir.
func serviceOf(t *testing.T, dir, command string) (procRoot string) {
	t.Helper()
	procRoot = t.TempDir()
	folder := filepath.Join(procRoot, "7")
	if err := errors.Join(os.Mkdir(folder, 0o755), os.Symlink(dir, filepath.Join(folder, "cwd")), os.Symlink("/bin/sh", filepath.Join(folder, "exe"))); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"cmdline": strings.ReplaceAll(command, " ", "\x00"), "cgroup": "0::/system.slice/shop.service\n", "status": "Uid:\t0\t0\t0\t0\n", "comm": "docker\n"} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return procRoot
}

// While a read hangs, Find reads no other file, and takes the working directory for that of the project.
func TestAWorkingDirectoryThatHangsDoesNotHangLists(t *testing.T) {
	dir, files := t.TempDir(), NewFiles()
	<-files.free
	clients, err := Find(t.Context(), files, serviceOf(t, dir, "docker compose up"), "", nil)
	if err != nil || len(clients) != 1 || !clients[0].Runs("web", id, map[string]string{labelProject: "shop", labelDir: dir}) {
		t.Errorf("Find() = %+v, %v, want the client of the project in its working directory", clients, err)
	}
}

func TestReadsThatHangDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, reads, recovered := NewFiles(), 0, make(chan struct{})
		hanging := func(string) ([]byte, error) {
			reads++
			<-recovered
			return nil, nil
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			files.read(ctx, "f", hanging)
			cancel()
		}
		synctest.Wait()
		if reads != 1 {
			t.Errorf("%d reads hang, want one", reads)
		}
		close(recovered)
		<-files.free // its end lets others read
	})
}

// Opening a device may have side effects, and a FIFO hangs.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, composeFiles[0])
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	files := NewFiles()
	if clients, err := Find(t.Context(), files, serviceOf(t, dir, "docker compose up"), "", nil); err != nil || len(clients) != 1 {
		t.Errorf("Find() = %+v, %v, want a client", clients, err)
	}
	select {
	case <-files.free:
	default:
		t.Error("a read of a FIFO hangs, want none")
	}
}

// A command that names its project or its files needs no search for a file.
func TestComposeFilesAreSearchedOnlyIfNecessary(t *testing.T) {
	for command, want := range map[string]bool{"docker compose up": true, "docker compose -p shop up": false, "docker compose -f a.yaml up": false} {
		searched := false
		parse(process{args: strings.Fields(command), dir: "/srv", env: func(string) string { return "" }, read: func(string, fileReader) string {
			searched = true
			return ""
		}})
		if searched != want {
			t.Errorf("%q reads files: %t, want %t", command, searched, want)
		}
	}
}

// Another user could have hostler stop the service instead of the container.
func TestAFileWithAnIDThatOthersCanChangeIsNotBelieved(t *testing.T) {
	for mode, want := range map[os.FileMode]int{0o600: 1, 0o666: 0} {
		dir := t.TempDir()
		file := filepath.Join(dir, "web.cid")
		if err := errors.Join(os.WriteFile(file, []byte(id), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		clients, err := Find(t.Context(), NewFiles(), serviceOf(t, dir, "docker run --cidfile web.cid nginx"), "", nil)
		if err != nil || len(clients) != want {
			t.Errorf("Find() with a file of mode %v = %+v, %v, want %d clients", mode, clients, err, want)
		}
	}
}

// Any user may have many processes, which each list of containers would inspect.
func TestProcessesOutsideOfServicesAreNotInspected(t *testing.T) {
	const count = 200
	allocations := func(cgroup string) float64 {
		root := t.TempDir()
		for pid := range count {
			folder := filepath.Join(root, strconv.Itoa(pid+1))
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"cgroup": "0::" + cgroup + "\n", "status": "Uid:\t0\t0\t0\t0\n", "comm": "sleep\n"} {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for link, to := range map[string]string{"root": "/", "exe": "/bin/sh"} {
				if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
					t.Fatal(err)
				}
			}
		}
		return testing.AllocsPerRun(1, func() {
			if _, err := Find(t.Context(), NewFiles(), root, "", nil); err != nil {
				t.Error(err)
			}
		})
	}
	inspected, users := allocations("/system.slice/cron.service"), allocations("/user.slice/user-1000.slice/session-1.scope")
	if t.Logf("%v allocations for processes of services, %v for others", inspected/count, users/count); users > inspected/2 {
		t.Errorf("Find() allocates %v times for processes of a session, and %v times for those of a service, want less than half", users, inspected)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("docker\x00run\x00--name")
	f.Add("docker\x00compose\x00-f\x00up")
	f.Add("runc\x00run")
	f.Fuzz(func(_ *testing.T, command string) {
		same := func(string) string { return command }
		if client, ok := parse(process{args: strings.Split(command, "\x00"), dir: "/", env: same, read: func(string, fileReader) string { return command }}); ok {
			client.Runs("web", id, shop)
		}
	})
}
