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

// Credentials are a client's files.
type Credentials struct{ Certificate, Key string }

// certify makes the authority, the members' certificate and the administrator's.
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

// CertifyMembers gives all members a certificate that ends after a while, or has ended
// for as long if that is below zero. Members read it with each connection.
func (c *Cluster) CertifyMembers(lifetime time.Duration) error {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)} // where a test lies in between
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
		// Members speak to themselves, too.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: addresses, DNSNames: []string{"localhost"},
	})
	if err != nil {
		return err
	}
	c.Identity = Credentials{c.file("server.crt"), c.file("server.key")}
	return c.write("server", p)
}

// Client writes a certificate of a user that ends after a while, or has ended for as long
// if that is below zero, in place of one that the user had.
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

// span is a lifetime as of now.
func span(lifetime time.Duration) (begin, end time.Time) {
	end = time.Now().Add(lifetime)
	return end.Add(-max(lifetime, -lifetime) - 24*time.Hour), end
}

// write replaces a certificate and its key, each at once.
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

// Grant gives a user, which it makes with that password, a right to keys: to one, or with
// a slash at the end to all that begin so. The role has the user's name.
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
	if password == "" { // it comes by its certificate
		add = []string{"user", "add", user, "--no-password"}
	}
	for _, line := range append(lines, add, []string{"user", "grant-role", user, user}) {
		if _, err := c.Ctl(ctx, line...); err != nil {
			return fmt.Errorf("grant %s: %w", user, err)
		}
	}
	return nil
}
