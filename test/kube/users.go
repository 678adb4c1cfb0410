package kube

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"
)

// User is the user of a kubeconfig.
type User struct {
	Name   string
	Groups []string
	// Lifetime is the lifetime of the certificate: a day if zero. A negative one ended that long ago.
	Lifetime time.Duration
	// Token is used instead of a certificate. The server accepts it if the user is one of
	// Options.Users.
	Token string
}

// Admin returns the user that may do everything.
func Admin() User { return User{Name: "admin", Groups: []string{"system:masters"}} }

// Node returns the user of a node's agent.
func Node(name string) User {
	return User{Name: "system:node:" + name, Groups: []string{"system:nodes"}}
}

// Certificate creates a new certificate for a user, with its key, as PEM.
func (c *Cluster) Certificate(u User) (certificate, key []byte, err error) {
	p, err := c.ca.user(u)
	return p.Certificate, p.Key, err
}

// kubeconfig has the needed fields of the file.
type kubeconfig struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
	Contexts       []namedContext `json:"contexts"`
	CurrentContext string         `json:"current-context"`
}

type namedCluster struct {
	Name    string `json:"name"`
	Cluster struct {
		Server string `json:"server"`
		CAFile string `json:"certificate-authority"`
	} `json:"cluster"`
}

type namedUser struct {
	Name string `json:"name"`
	User struct {
		Certificate []byte `json:"client-certificate-data,omitempty"`
		Key         []byte `json:"client-key-data,omitempty"`
		Token       string `json:"token,omitempty"`
	} `json:"user"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

// Kubeconfig writes a kubeconfig for a user, with the token or a new certificate, and returns its
// path. The cluster removes the file when it is closed.
func (c *Cluster) Kubeconfig(u User) (string, error) {
	var cluster namedCluster
	cluster.Name, cluster.Cluster.Server, cluster.Cluster.CAFile = "kube", c.Server, c.CAFile
	var user namedUser
	user.Name, user.User.Token = u.Name, u.Token
	if u.Token == "" {
		p, err := c.ca.user(u)
		if err != nil {
			return "", err
		}
		user.User.Certificate, user.User.Key = p.Certificate, p.Key
	}
	var both namedContext
	both.Name, both.Context.Cluster, both.Context.User = "kube", cluster.Name, user.Name
	data, err := json.MarshalIndent(kubeconfig{
		APIVersion: "v1", Kind: "Config", CurrentContext: both.Name,
		Clusters: []namedCluster{cluster}, Users: []namedUser{user}, Contexts: []namedContext{both},
	}, "", "  ")
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(c.dir, "*.kubeconfig")
	if err != nil {
		return "", err
	}
	_, err = file.Write(append(data, '\n'))
	return file.Name(), errors.Join(err, file.Close())
}

// NodeKubeconfig is Kubeconfig for the agent of a node.
func (c *Cluster) NodeKubeconfig(name string) (string, error) { return c.Kubeconfig(Node(name)) }

// AdminKubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) AdminKubeconfig() string { return c.admin }

// bootstrapToken consists of its ID and its secret.
const bootstrapToken = "hostlr.0123456789abcdef"

// bootstrapObjects are what kubeadm creates for joining nodes: the token, and the rights to request
// certificates, to have them approved automatically, and to renew them.
const bootstrapObjects = `apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-hostlr, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: hostlr, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nodes-may-ask}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-bootstrapper"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nodes-are-approved}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nodes-may-renew}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
`

// BootstrapKubeconfig allows nodes to join by TLS bootstrap, and writes the kubeconfig that they
// start with. Certificates are approved and signed only if the controller manager runs.
func (c *Cluster) BootstrapKubeconfig(ctx context.Context) (string, error) {
	if err := c.Apply(ctx, bootstrapObjects); err != nil {
		return "", err
	}
	return c.Kubeconfig(User{Name: "system:bootstrap:hostlr", Token: bootstrapToken})
}
