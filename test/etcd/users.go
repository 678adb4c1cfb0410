package etcd

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"hostler.io/hostler/test/lab"
)

// Credentials are the files of a client.
type Credentials struct{ Certificate, Key string }

// certify creates the authority, the members' certificate and the administrator's.
func (c *Cluster) certify() error {
	ca, own, err := lab.NewAuthority("etcd")
	if err != nil {
		return err
	}
	c.ca, c.CAFile = ca, c.file("ca.crt")
	if err := os.WriteFile(c.CAFile, own.Certificate, 0o644); err != nil {
		return err
	}
	if err := c.CertifyMembers(time.Hour * 24); err != nil {
		return err
	}
	c.admin, err = c.Client("root", 24*time.Hour)
	return err
}

// CertifyMembers gives all members a certificate with that lifetime; a negative lifetime ended that
// long ago. Members read it at each connection.
func (c *Cluster) CertifyMembers(lifetime time.Duration) error {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)} // for a proxy of a test in front of it
	for _, m := range c.Members {
		u, err := url.Parse(m.Endpoint)
		if err != nil {
			return err
		}
		addresses = append(addresses, net.ParseIP(u.Hostname()))
	}
	begin, end := span(lifetime)
	p, err := c.ca.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "etcd"}, NotBefore: begin, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature,
		// Members are also clients of themselves.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: addresses, DNSNames: []string{"localhost"},
	})
	if err != nil {
		return err
	}
	c.Identity = Credentials{c.file("server.crt"), c.file("server.key")}
	return c.write("server", p)
}

// Client writes a certificate of a user with that lifetime, instead of an earlier one; a negative
// lifetime ended that long ago.
func (c *Cluster) Client(user string, lifetime time.Duration) (Credentials, error) {
	begin, end := span(lifetime)
	p, err := c.ca.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: user}, NotBefore: begin, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Credentials{}, err
	}
	name := "client-" + user
	return Credentials{c.file(name + ".crt"), c.file(name + ".key")}, c.write(name, p)
}

// span returns when a lifetime begins and ends.
func span(lifetime time.Duration) (begin, end time.Time) {
	end = time.Now().Add(lifetime)
	return end.Add(-max(lifetime, -lifetime) - 24*time.Hour), end
}

// write replaces a certificate and its key, each atomically.
func (c *Cluster) write(name string, p lab.Pair) error {
	for file, data := range map[string][]byte{c.file(name + ".crt"): p.Certificate, c.file(name + ".key"): p.Key} {
		if err := os.WriteFile(file+".new", data, 0o600); err != nil {
			return err
		}
		if err := os.Rename(file+".new", file); err != nil {
			return err
		}
	}
	return nil
}

// EnableAuth turns auth on, with root as the administrator.
func (c *Cluster) EnableAuth(ctx context.Context) error {
	const password = "secret"
	for _, args := range [][]string{
		{"user", "add", "root:" + password}, {"user", "grant-role", "root", "root"}, {"auth", "enable"},
	} {
		if _, err := c.Ctl(ctx, args...); err != nil {
			return err
		}
	}
	c.password = password
	return nil
}

// Grant creates a user with that password and gives it a right to keys; a key that ends with a
// slash is a prefix. The role has the user's name.
func (c *Cluster) Grant(ctx context.Context, user, password, right string, keys ...string) error {
	lines := [][]string{{"role", "add", user}}
	for _, key := range keys {
		line := []string{"role", "grant-permission", user, right, key}
		if key[len(key)-1] == '/' {
			line = append(line, "--prefix")
		}
		lines = append(lines, line)
	}
	add := []string{"user", "add", user + ":" + password}
	if password == "" { // the user has a certificate
		add = []string{"user", "add", user, "--no-password"}
	}
	for _, line := range append(lines, add, []string{"user", "grant-role", user, user}) {
		if _, err := c.Ctl(ctx, line...); err != nil {
			return fmt.Errorf("grant %s: %w", user, err)
		}
	}
	return nil
}
