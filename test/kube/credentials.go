package kube

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"hostler.io/hostler/test/lab"
)

// authority signs the certificates of servers and clients.
type authority struct{ *lab.Authority }

// server creates the certificate of a server at an address. It is valid since a day ago, for
// clients with another clock.
func (a *authority) server(address string) (lab.Pair, error) {
	return a.Sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: time.Now().AddDate(0, 0, -1), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.ParseIP(address)}, DNSNames: []string{"localhost", "kubernetes.default.svc"},
	})
}

// user creates the certificate of a client. It is valid from now on, because clients renew it after
// a fraction of its life.
func (a *authority) user(u User) (lab.Pair, error) {
	lifetime := u.Lifetime
	if lifetime == 0 {
		lifetime = 24 * time.Hour
	}
	end := time.Now().Add(lifetime)
	begin := time.Now()
	if lifetime < 0 {
		begin = end.Add(-24 * time.Hour)
	}
	return a.Sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: u.Name, Organization: u.Groups},
		NotBefore: begin, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// writeFiles writes all files that the daemons read, and the administrator's credentials.
func (c *Cluster) writeFiles(address string, users []User) error {
	ca, own, err := lab.NewAuthority("kube")
	if err != nil {
		return err
	}
	c.ca, c.CAFile = &authority{ca}, c.file("ca.crt")
	server, err := c.ca.server(address)
	if err != nil {
		return err
	}
	accounts, err := c.ca.user(User{Name: "accounts"}) // its key signs the tokens of service accounts
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"ca.crt": own.Certificate, "ca.key": own.Key,
		"server.crt": server.Certificate, "server.key": server.Key,
		"accounts.key": accounts.Key, "audit-policy.yaml": []byte(auditPolicy), "tokens.csv": []byte(tokenFile(users)),
	} {
		if err := os.WriteFile(c.file(name), data, 0o600); err != nil {
			return err
		}
	}
	if c.admin, err = c.Kubeconfig(Admin()); err != nil {
		return err
	}
	return c.connect()
}

// connect creates the client for readiness checks.
func (c *Cluster) connect() error {
	p, err := c.ca.user(Admin())
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(c.CAFile)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return errors.New("read the authority's certificate: no certificate in it")
	}
	c.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}}
	return nil
}

// tokenFile returns the file for --token-auth-file: token, user, user's ID, groups.
func tokenFile(users []User) string {
	var lines strings.Builder
	for _, u := range users {
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", u.Token, u.Name, u.Name, strings.Join(u.Groups, ","))
	}
	return lines.String()
}
