package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"hostler.io/hostler/test/lab"
)

// Options configure a control plane. The zero value is etcd and kube-apiserver on loopback.
type Options struct {
	// ControllerManager runs kube-controller-manager with all its default
	// controllers: those of nodes, and those that approve and sign certificates.
	ControllerManager bool
	// Scheduler runs kube-scheduler.
	Scheduler bool
	// These flags override the default ones, such as --node-monitor-grace-period=3s or
	// --cluster-signing-duration=1m.
	EtcdFlags, APIServerFlags, ControllerManagerFlags []string
	// Users are users with a static token.
	Users []User
	// Apart runs the servers in their own network namespace, so that Cut can drop packets.
	Apart bool
}

// Cluster is a control plane. Each daemon can be killed, paused and started again, with its data
// and address. Ready waits until it serves again.
type Cluster struct {
	Server string // such as "https://127.18.0.1:6443"
	CAFile string // authority of all certificates of the server and of clients

	Etcd, APIServer   *lab.Daemon
	ControllerManager *lab.Daemon // nil unless Options request it
	Scheduler         *lab.Daemon // the same

	dir      string
	number   int
	ca       *authority
	admin    string // kubeconfig
	client   *http.Client
	kubectl  string
	wall     *lab.Wall // nil unless Apart
	wrapping []string
	hollow   []*lab.Daemon
}

// port is the API server's port.
const port = 6443

// auditPolicy logs a line for each request to a resource, without its content.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["*"]
- level: Metadata
`

// Start starts a control plane in the lab of the caller. It returns when the API server serves, the
// namespaces for nodes exist, and the controllers work.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if _, err := lab.Current(); err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	c, err := newCluster()
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start control plane: %w", err), c.Close())
	}
	return c, nil
}

// newCluster reserves a folder. Its number determines an address that no other cluster in the lab
// has: a random free port could be in use when the server is restarted.
func newCluster() (*Cluster, error) {
	for n := 1; n < 255; n++ {
		dir := filepath.Join(lab.Dir, fmt.Sprintf("kube-%d", n))
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			return &Cluster{dir: dir, number: n}, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("254 control planes are in %s already", lab.Dir)
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) start(ctx context.Context, o Options) error {
	var err error
	address := fmt.Sprintf("127.18.0.%d", c.number)
	if o.Apart {
		if c.wall, err = lab.BuildWall(c.file("netns"), fmt.Sprintf("kube%d", c.number), fmt.Sprintf("198.18.%d", c.number)); err != nil {
			return err
		}
		address, c.wrapping = c.wall.Address, c.wall.Wrapping()
	}
	c.Server = fmt.Sprintf("https://%s:%d", address, port)
	if err := c.writeFiles(address, o.Users); err != nil {
		return err
	}
	if c.kubectl, err = Kubectl.Path(ctx); err != nil {
		return err
	}
	if c.Etcd, err = c.daemon(ctx, Etcd, append(c.etcdFlags(), o.EtcdFlags...)); err != nil {
		return err
	}
	if c.APIServer, err = c.daemon(ctx, APIServer, append(c.apiServerFlags(address), o.APIServerFlags...)); err != nil {
		return err
	}
	if err := errors.Join(c.Etcd.Start(), c.APIServer.Start(), c.Ready(ctx)); err != nil {
		return fmt.Errorf("%w\nlog of etcd:\n%s", err, c.Etcd.Log(10))
	}
	if o.Scheduler {
		if err := c.startScheduler(ctx); err != nil {
			return err
		}
	}
	if !o.ControllerManager {
		return nil
	}
	flags, err := c.controllerManagerFlags()
	if err != nil {
		return err
	}
	c.ControllerManager, err = c.daemon(ctx, ControllerManager, append(flags, o.ControllerManagerFlags...))
	if err != nil {
		return err
	}
	if err := c.ControllerManager.Start(); err != nil {
		return err
	}
	// The result of a controller shows that the controllers work.
	return c.ControllerManager.Await(ctx, func(ctx context.Context) error {
		return c.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
	})
}

// daemon returns a daemon of the control plane, in its network.
func (c *Cluster) daemon(ctx context.Context, p Program, flags []string) (*lab.Daemon, error) {
	path, err := p.Path(ctx)
	if err != nil {
		return nil, err
	}
	line := append(append(append([]string{}, c.wrapping...), path), flags...)
	return lab.NewDaemon(string(p), lab.Tool{Path: line[0]}, c.dir, nil, line[1:]...), nil
}

// EtcdSocket returns the socket of etcd, for tests that bypass the API server.
func (c *Cluster) EtcdSocket() string { return c.file("etcd.sock") }

func (c *Cluster) etcdFlags() []string {
	return []string{
		"--data-dir=" + c.file("etcd"),
		"--listen-client-urls=unix://" + c.EtcdSocket(),
		// A socket cannot be advertised. The address is not used, so any valid one will do.
		"--advertise-client-urls=http://127.0.0.111:0",
		"--listen-peer-urls=http://127.0.0.1:0",
		"--log-level=warn",
	}
}

func (c *Cluster) apiServerFlags(address string) []string {
	return []string{
		"--etcd-servers=unix://" + c.EtcdSocket(),
		"--bind-address=" + address,
		"--advertise-address=" + address,
		fmt.Sprintf("--secure-port=%d", port),
		// No client uses a Service for the server, and a loopback address is not allowed as its endpoint.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file=" + c.file("server.crt"),
		"--tls-private-key-file=" + c.file("server.key"),
		"--client-ca-file=" + c.CAFile,
		"--token-auth-file=" + c.file("tokens.csv"),
		"--enable-bootstrap-token-auth",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file("accounts.key"),
		"--service-account-signing-key-file=" + c.file("accounts.key"),
		"--audit-policy-file=" + c.file("audit-policy.yaml"),
		"--audit-log-path=" + c.file("audit.log"),
	}
}

func (c *Cluster) controllerManagerFlags() ([]string, error) {
	kubeconfig, err := c.Kubeconfig(User{Name: "system:kube-controller-manager"})
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + c.file("accounts.key"),
		"--root-ca-file=" + c.CAFile,
		"--cluster-signing-cert-file=" + c.CAFile,
		"--cluster-signing-key-file=" + c.file("ca.key"),
	}, err
}

// Ready waits until the API server serves and the namespaces for nodes exist.
func (c *Cluster) Ready(ctx context.Context) error {
	return c.APIServer.Await(ctx, func(ctx context.Context) error {
		for _, path := range []string{"/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/kube-node-lease"} {
			if err := c.get(ctx, path); err != nil {
				return err
			}
		}
		return nil
	})
}

// get requests a path as the administrator.
func (c *Cluster) get(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	answer, err := c.Open(ctx, path)
	if err != nil {
		return err
	}
	defer answer.Close()
	// Read it to its end, so that the connection can be used again.
	_, err = io.Copy(io.Discard, answer)
	return err
}

// Open sends a GET of a path to the API server as administrator, and returns the body as a stream.
// The stream of a watch ends with ctx. The caller closes it. The servers must be in the network of
// the lab.
func (c *Cluster) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Server+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return nil, errors.Join(fmt.Errorf("get %s: %s: %s", path, answer.Status, text), err)
}

// Kubectl runs kubectl in the network of the servers and returns its output. It runs as
// administrator, or as the user of a --kubeconfig in the arguments.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.runKubectl(ctx, "", args)
}

// Apply sends objects to the server with `kubectl apply`.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.runKubectl(ctx, manifests, []string{"apply", "--server-side", "-f", "-"})
	return err
}

// ApplyFiles is Apply for all files that match a pattern of filepath.Glob.
func (c *Cluster) ApplyFiles(ctx context.Context, pattern string) error {
	files, err := filepath.Glob(pattern)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no file matches %s", pattern)
	}
	if err != nil {
		return err
	}
	_, err = c.runKubectl(ctx, "", []string{"apply", "--server-side", "-f", strings.Join(files, ",")})
	return err
}

// KubectlCommand returns the command of Kubectl, for callers that read its output while it runs,
// such as `get --watch`.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	line := append(append(append([]string{}, c.wrapping...), c.kubectl), args...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	// kubectl caches what it reads from the server in the home folder.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.admin, "HOME="+c.dir, "KUBECACHEDIR="+c.file("kubectl"))
	return cmd
}

func (c *Cluster) runKubectl(ctx context.Context, stdin string, args []string) (string, error) {
	cmd := c.KubectlCommand(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// daemons returns the existing daemons.
func (c *Cluster) daemons() map[Program]*lab.Daemon {
	all := map[Program]*lab.Daemon{Etcd: c.Etcd, APIServer: c.APIServer, ControllerManager: c.ControllerManager, Scheduler: c.Scheduler}
	maps.DeleteFunc(all, func(_ Program, d *lab.Daemon) bool { return d == nil })
	return all
}

// errTogether is the error of a Cut without Options.Apart.
var errTogether = errors.New("cut the network: the control plane is on loopback: set Options.Apart")

// Cut drops all packets between the lab and the servers, like a broken network: no connection is
// reset. It needs Options.Apart.
func (c *Cluster) Cut() error {
	if c.wall == nil {
		return errTogether
	}
	return c.wall.Cut()
}

// Restore ends a Cut.
func (c *Cluster) Restore() error {
	if c.wall == nil {
		return errTogether
	}
	return c.wall.Restore()
}

// Close ends the control plane and removes its files.
func (c *Cluster) Close() error {
	var errs []error
	for _, d := range c.hollow {
		errs = append(errs, d.Kill())
	}
	for _, d := range c.daemons() {
		errs = append(errs, d.Kill())
	}
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	if c.wall != nil {
		errs = append(errs, c.wall.Remove())
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
