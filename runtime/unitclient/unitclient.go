// Package unitclient finds systemd services that run containers through a client that stays in the
// foreground, such as `docker run`, `docker start --attach` or `docker compose up`. The container
// is not a process of the service. When it exits, the client exits too, and systemd may restart
// both. Such a container is stopped by stopping its service.
//
// It parses the command lines of clients. It calls neither a runtime nor systemd.
package unitclient

import (
	"path/filepath"
	"slices"
	"strings"

	"hostler.io/hostler/internal/trust"
)

// Client is a process of a service that runs containers while it lives.
type Client struct {
	PID     int
	Service string // such as "shop.service"
	// PassesOn means that the client runs one container and forwards SIGTERM to it: a stop of the
	// service sends the stop signal to the container, once.
	PassesOn bool

	command string   // /proc/PID/cmdline
	names   []string // or IDs of its containers
	project project
}

// project is a Compose project as the client's command identifies it.
type project struct {
	name  string   // empty if the command does not contain it
	files []string // absolute paths; empty if Compose searches for its file
	dir   string   // absolute; its folder, which counts without a name or files; empty for a client without a project
}

// Labels in which Docker Compose records the project of a container.
const (
	labelProject = "com.docker.compose.project"
	labelDir     = "com.docker.compose.project.working_dir"
	labelFiles   = "com.docker.compose.project.config_files"
)

// minPrefix is the minimum length of an abbreviated ID, as `docker ps` shows it.
const minPrefix = 12

// Runs reports whether the client runs a container with that name, ID and labels.
func (c Client) Runs(name, id string, labels map[string]string) bool {
	if c.project.dir != "" {
		return c.project.has(labels)
	}
	return slices.ContainsFunc(c.names, func(text string) bool {
		return text == name || text == id || len(text) >= minPrefix && strings.HasPrefix(id, text)
	})
}

func (p project) has(labels map[string]string) bool {
	switch {
	case labels[labelProject] == "" || labels[labelDir] == "": // builds by Compose give images the first alone
		return false
	case p.name != "":
		return labels[labelProject] == p.name
	case len(p.files) > 0:
		files := strings.Split(labels[labelFiles], ",")
		return slices.ContainsFunc(p.files, func(f string) bool { return slices.Contains(files, f) })
	}
	return labels[labelDir] == p.dir
}

// process is what /proc reports about a process.
type process struct {
	args []string
	dir  string // working directory
	env  func(name string) string
	read func(path string, by fileReader) string // returns the content of a file; "" if it has none or cannot be read
}

// reader returns the parser for a program's arguments, or nil if the program is never a client.
func reader(program string) func(c *Client, p process, args []string) bool {
	switch filepath.Base(program) {
	case "docker", "podman", "nerdctl":
		return engine
	case "docker-compose", "podman-compose":
		return composeUp
	case "runc", "crun":
		return lowLevel
	}
	return nil
}

// split finds the program in a command, which for a script comes after its interpreter. It returns
// the parser for the program, nil if it cannot be a client, and the program's arguments.
func split(args []string) (read func(c *Client, p process, args []string) bool, rest []string) {
	for i := range min(len(args), 2) {
		if read := reader(args[i]); read != nil {
			return read, args[i+1:]
		}
	}
	return nil, nil
}

// parse returns the client of a command. ok is false if it runs nothing, or if that is unknown.
func parse(p process) (c Client, ok bool) {
	if read, rest := split(p.args); read != nil {
		ok = read(&c, p, rest)
	}
	return c, ok
}

// engine parses a command of Docker, or of a program with the same commands.
func engine(c *Client, p process, args []string) bool {
	for i, arg := range args {
		rest := args[i+1:]
		switch arg {
		case "compose":
			return composeUp(c, p, rest)
		case "run":
			c.PassesOn = passesOn(rest)
			if name := option(rest, "--name"); name != "" {
				c.names = append(c.names, name)
			}
			if file := option(rest, "--cidfile"); file != "" {
				if id := strings.TrimSpace(p.read(absolute(p.dir, file), trust.ReadRegularFile)); id != "" {
					c.names = append(c.names, id)
				}
			}
			return len(c.names) > 0
		case "start", "attach", "wait":
			if arg == "start" && !attaches(rest) {
				return false // it ends soon, for example in a script or a job of cron.service
			}
			for _, text := range rest {
				if !strings.HasPrefix(text, "-") {
					c.names = append(c.names, text)
				}
			}
			c.PassesOn = arg != "wait" && len(c.names) == 1 && passesOn(rest)
			return len(c.names) > 0
		case "exec", "logs", "stop", "kill", "rm", "pull", "build", "stats", "events", "cp", "top", "inspect", "ps", "create":
			return false // runs no container, whatever follows
		}
	}
	return false
}

// attaches reports whether `start` with these arguments waits until the container ends.
func attaches(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		flags, short := strings.CutPrefix(arg, "-")
		if short && !strings.HasPrefix(flags, "-") {
			return strings.ContainsAny(flags, "ai")
		}
		return slices.Contains([]string{"--attach", "--attach=true", "--interactive", "--interactive=true"}, arg)
	})
}

// passesOn reports whether a command with these arguments passes on signals. That is the default,
// except from a terminal.
func passesOn(args []string) bool {
	for _, arg := range args {
		single := strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.Contains(arg, "t") && len(arg) <= 4
		if single || arg == "--tty" || arg == "--tty=true" || arg == "--sig-proxy=false" {
			return false
		}
	}
	return true
}

// composeUp parses `docker compose up`, without the part before its options.
func composeUp(c *Client, p process, args []string) bool {
	up := slices.Index(args, "up")
	if up < 0 || p.dir == "" {
		return false
	}
	args = args[slices.Index(args[:up], "compose")+1 : up] // Docker passes a plugin its name first
	c.project.name = option(args, "-p", "--project-name")
	if c.project.name == "" {
		c.project.name = p.env("COMPOSE_PROJECT_NAME")
	}
	files := options(args, "-f", "--file")
	if len(files) == 0 && p.env("COMPOSE_FILE") != "" {
		files = strings.Split(p.env("COMPOSE_FILE"), ":")
	}
	for _, f := range files {
		c.project.files = append(c.project.files, absolute(p.dir, f))
	}
	switch dir := option(args, "--project-directory"); {
	case dir != "":
		c.project.dir = absolute(p.dir, dir)
	case c.project.name != "", len(c.project.files) > 0:
		c.project.dir = p.dir
	default:
		c.project.dir = searched(p)
	}
	return true
}

// composeFiles are the names of the file for which Compose and podman-compose search.
var composeFiles = []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml", "podman-compose.yaml", "podman-compose.yml", "container-compose.yml", "container-compose.yaml"}

// searched returns the nearest folder with a Compose file, from the working directory upwards. If there
// is none, or the file system does not answer, it returns the working directory.
func searched(p process) string {
	for dir := p.dir; ; dir = filepath.Dir(dir) {
		if slices.ContainsFunc(composeFiles, func(name string) bool { return p.read(filepath.Join(dir, name), trust.ReadUntrusted) != "" }) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return p.dir
		}
	}
}

// lowLevel parses `runc run`, whose last argument is the container.
func lowLevel(c *Client, _ process, args []string) bool {
	run := slices.Index(args, "run")
	if run < 0 || run == len(args)-1 {
		return false
	}
	c.names = args[len(args)-1:]
	return true
}

// option returns the value of the first option with one of the names, as "--name=value" or "--name
// value", or "".
func option(args []string, names ...string) string {
	values := append(options(args, names...), "")
	return values[0]
}

// options returns the values of all options with one of the names.
func options(args []string, names ...string) (values []string) {
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case !slices.Contains(names, name):
		case joined:
			values = append(values, value)
		case i+1 < len(args):
			values = append(values, args[i+1])
		}
	}
	return values
}

// absolute returns the absolute path of a path in the command of a process with that working
// directory.
func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}
