package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// Options configure a cluster. The zero value is one member with plain http on loopback.
type Options struct {
	Members int  // 1 if 0
	TLS     bool // https, and each client has to present a certificate
	// Apart runs each member in its own network namespace, so that Cut can drop its packets.
	Apart bool
	// HTTPApart makes members serve metrics and health over HTTP at a separate address, as etcd
	// recommends.
	HTTPApart bool
	// Disks puts the data of each member on its own filesystem, so that Freeze can block it.
	Disks bool
	Flags []string // additional flags; they override the default ones
}

// Cluster is an etcd cluster.
type Cluster struct {
	Members []*Member
	CAFile  string // authority of all certificates; empty without TLS
	// Identity is the certificate of the members, which is also valid for localhost: a test server can
	// present it as a member. Empty without TLS.
	Identity Credentials

	o        Options
	dir      string
	number   int
	ca       *lab.Authority // nil without TLS
	admin    Credentials    // of etcdctl
	password string         // of etcdctl's user root; empty while auth is off
	tools    map[kube.Program]string
}

// Member is one member. It can be killed, paused and started again, with its data and address.
type Member struct {
	*lab.Daemon
	Name     string
	Endpoint string // such as "https://127.19.1.1:2379"
	HTTP     string // URL of metrics and health; differs from Endpoint with HTTPApart

	peer string
	dir  string    // of its data
	disk string    // mount point of its filesystem; empty without Disks
	wall *lab.Wall // nil unless Apart
}

// Start starts a cluster in the lab of the caller, and returns when it serves.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if _, err := lab.Current(); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	o.Members = max(o.Members, 1)
	c, err := newCluster(o)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), c.Close())
	}
	return c, nil
}

// newCluster reserves a folder. Its number determines addresses that no other cluster in the lab
// has.
func newCluster(o Options) (*Cluster, error) {
	for n := 1; n < 60; n++ {
		dir := filepath.Join(lab.Dir, fmt.Sprintf("etcd-%d", n))
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			return &Cluster{o: o, dir: dir, number: n, tools: map[kube.Program]string{}}, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("59 clusters are in %s already", lab.Dir)
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) start(ctx context.Context) error {
	for _, program := range []kube.Program{kube.Etcd, kube.Etcdctl, kube.Etcdutl} {
		path, err := program.Path(ctx)
		if err != nil {
			return err
		}
		c.tools[program] = path
	}
	if err := c.wrapEtcdctl(); err != nil {
		return err
	}
	for i := range c.o.Members {
		m, err := c.place(i)
		if err != nil {
			return err
		}
		c.Members = append(c.Members, m)
		if c.o.Disks {
			if err := c.mountDisk(ctx, m); err != nil {
				return err
			}
		}
	}
	if c.o.TLS {
		if err := c.certify(); err != nil {
			return err
		}
	}
	for _, m := range c.Members {
		m.Daemon = c.daemon(m)
	}
	return c.Run(ctx)
}

// wrapEtcdctl makes a program that runs etcdctl with minutes for an answer. The defaults are 5 s and 2 s, and 8 s for a
// connection, which a busy machine exceeds. etcdctl reads its environment too late for most commands.
func (c *Cluster) wrapEtcdctl() error {
	flags := "--command-timeout=5m --dial-timeout=5m"
	if c.o.Members == 1 { // otherwise, etcdctl turns to another member after those 8 s
		flags += " --keepalive-timeout=5m"
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", c.tools[kube.Etcdctl], flags)
	c.tools[kube.Etcdctl] = c.file("etcdctl")
	return os.WriteFile(c.tools[kube.Etcdctl], []byte(script), 0o755)
}

// place chooses the address of a member.
func (c *Cluster) place(i int) (*Member, error) {
	m := &Member{Name: fmt.Sprintf("m%d", i+1)}
	address := fmt.Sprintf("127.19.%d.%d", c.number, i+1)
	if c.o.Apart {
		var err error
		n := 4*c.number + i // at most 4 members
		if m.wall, err = lab.BuildWall(c.file(m.Name+".netns"), fmt.Sprintf("etcd%d", n), fmt.Sprintf("198.19.%d", n)); err != nil {
			return nil, err
		}
		address = m.wall.Address
	}
	scheme := "http"
	if c.o.TLS {
		scheme = "https"
	}
	m.Endpoint = fmt.Sprintf("%s://%s:2379", scheme, address)
	m.HTTP = m.Endpoint
	if c.o.HTTPApart {
		m.HTTP = fmt.Sprintf("%s://%s:2378", scheme, address)
	}
	m.peer = fmt.Sprintf("http://%s:2380", address)
	m.dir = c.file(m.Name)
	return m, nil
}

// daemon returns the process of the member.
func (c *Cluster) daemon(m *Member) *lab.Daemon {
	line := []string{
		c.tools[kube.Etcd],
		"--name=" + m.Name, "--data-dir=" + m.dir,
		"--listen-client-urls=" + m.Endpoint, "--advertise-client-urls=" + m.Endpoint,
		"--listen-peer-urls=" + m.peer, "--initial-advertise-peer-urls=" + m.peer,
		"--initial-cluster=" + c.initial(), "--initial-cluster-token=etcd-test",
		"--log-level=warn",
		// Short enough for tests, and long enough for a busy machine.
		"--heartbeat-interval=100", "--election-timeout=1000",
	}
	if c.o.TLS {
		line = append(line, "--cert-file="+c.file("server.crt"), "--key-file="+c.file("server.key"),
			"--trusted-ca-file="+c.CAFile, "--client-cert-auth")
	}
	if c.o.HTTPApart {
		line = append(line, "--listen-client-http-urls="+m.HTTP)
	}
	if m.wall != nil {
		line = append(m.wall.Wrapping(), line...)
	}
	line = append(line, c.o.Flags...)
	return lab.NewDaemon("etcd-"+m.Name, lab.Tool{Path: line[0]}, c.dir, nil, line[1:]...)
}

// initial returns the list by which members find each other.
func (c *Cluster) initial() string {
	var peers []string
	for _, m := range c.Members {
		peers = append(peers, m.Name+"="+m.peer)
	}
	return strings.Join(peers, ",")
}

// Endpoints returns the URLs of all members.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.Endpoint)
	}
	return all
}

// Run starts the members that do not run, and waits until the cluster serves.
func (c *Cluster) Run(ctx context.Context) error {
	for _, m := range c.Members {
		if err := m.Start(); err != nil {
			return err
		}
	}
	for _, m := range c.Members {
		if err := c.Ready(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// Ready waits until a member serves, confirmed by a majority.
func (c *Cluster) Ready(ctx context.Context, m *Member) error {
	return m.Await(ctx, func(ctx context.Context) error {
		_, err := c.run(ctx, kube.Etcdctl, c.environment([]string{m.Endpoint}), "", []string{"endpoint", "health", "--command-timeout=2s", "--dial-timeout=2s"})
		return err
	})
}

// Ctl runs etcdctl as the administrator against all members, and returns what it prints.
func (c *Cluster) Ctl(ctx context.Context, args ...string) (string, error) {
	return c.ctl(ctx, c.Endpoints(), "", args...)
}

// Put stores a value of any length.
func (c *Cluster) Put(ctx context.Context, key, value string) error {
	_, err := c.ctl(ctx, c.Endpoints(), value, "put", key)
	return err
}

// At runs etcdctl against one member.
func (c *Cluster) At(ctx context.Context, m *Member, args ...string) (string, error) {
	return c.ctl(ctx, []string{m.Endpoint}, "", args...)
}

// Environment returns the environment in which etcdctl uses this cluster as the administrator.
func (c *Cluster) Environment() []string { return c.environment(c.Endpoints()) }

// Tools returns the folder with etcdctl.
func (c *Cluster) Tools() string { return filepath.Dir(c.tools[kube.Etcdctl]) }

func (c *Cluster) environment(endpoints []string) []string {
	env := []string{"ETCDCTL_ENDPOINTS=" + strings.Join(endpoints, ",")}
	if c.o.TLS {
		env = append(env, "ETCDCTL_CACERT="+c.CAFile, "ETCDCTL_CERT="+c.admin.Certificate, "ETCDCTL_KEY="+c.admin.Key)
	}
	if c.password != "" {
		env = append(env, "ETCDCTL_USER=root", "ETCDCTL_PASSWORD="+c.password)
	}
	return env
}

// ctl runs etcdctl, again if the members were too busy to agree.
func (c *Cluster) ctl(ctx context.Context, endpoints []string, stdin string, args ...string) (out string, err error) {
	for range 10 {
		out, err = c.run(ctx, kube.Etcdctl, c.environment(endpoints), stdin, args)
		if err == nil || !strings.Contains(err.Error(), "etcdserver: request timed out") && !strings.Contains(err.Error(), "etcdserver: leader changed") {
			break
		}
	}
	return out, err
}

func (c *Cluster) run(ctx context.Context, program kube.Program, env []string, stdin string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, c.tools[program], args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s%s", program, strings.Join(args, " "), err, out.String(), strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// Leader returns the member that leads.
func (c *Cluster) Leader(ctx context.Context) (*Member, error) {
	for _, m := range c.Members {
		if m.PID() == 0 {
			continue
		}
		status, err := c.At(ctx, m, "endpoint", "status", "--write-out=fields")
		if err != nil {
			return nil, err
		}
		fields := map[string]string{}
		for line := range strings.Lines(status) {
			name, value, _ := strings.Cut(line, ":")
			fields[strings.Trim(name, `" `)] = strings.TrimSpace(value)
		}
		if fields["MemberID"] == fields["Leader"] {
			return m, nil
		}
	}
	return nil, errors.New("no member leads")
}

// Cut drops all packets to and from the member. It needs Options.Apart.
func (m *Member) Cut() error { return m.wall.Cut() }

// Restore ends a Cut.
func (m *Member) Restore() error { return m.wall.Restore() }

// Backup writes a snapshot into a file.
func (c *Cluster) Backup(ctx context.Context, file string) error {
	_, err := c.At(ctx, c.Members[0], "snapshot", "save", file)
	return err
}

// Restore ends all members and starts them from a backup, as an operator does after the loss of a
// cluster: with the same names, addresses and token. flags are more flags of etcdutl.
func (c *Cluster) Restore(ctx context.Context, file string, flags ...string) error {
	for _, m := range c.Members {
		if err := m.Kill(); err != nil {
			return err
		}
		if err := os.RemoveAll(m.dir); err != nil {
			return err
		}
		_, err := c.run(ctx, kube.Etcdutl, nil, "", append([]string{
			"snapshot", "restore", file, "--name=" + m.Name, "--data-dir=" + m.dir,
			"--initial-cluster=" + c.initial(), "--initial-cluster-token=etcd-test", "--initial-advertise-peer-urls=" + m.peer,
		}, flags...))
		if err != nil {
			return err
		}
	}
	return c.Run(ctx)
}

// Close ends the cluster and removes its files.
func (c *Cluster) Close() error {
	var errs []error
	for _, m := range c.Members {
		errs = append(errs, m.Thaw()) // otherwise it cannot end
		if m.Daemon != nil {
			if m.PID() != 0 {
				_ = m.Signal(syscall.SIGCONT) // otherwise it cannot end
			}
			errs = append(errs, m.Kill())
		}
		if m.wall != nil {
			errs = append(errs, m.wall.Remove())
		}
		if m.disk != "" {
			errs = append(errs, lab.Unmount(m.disk))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
