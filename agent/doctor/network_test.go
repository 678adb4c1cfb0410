package doctor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/doctor"
)

// served is a healthy host that serves its API over the network.
func served() doctor.Facts {
	f := healthy()
	f.Network = &doctor.Network{Certificate: &doctor.Certificate{Path: "/etc/hostler/api.crt", Begins: time.Now().Add(-time.Hour), Ends: time.Now().Add(24 * time.Hour)}}
	return f
}

func TestAHostThatServesCallersOverTheNetworkIsFine(t *testing.T) {
	for _, c := range doctor.Examine(served()).Checks {
		if c.Name == "network" && c.Status == doctor.OK && strings.Contains(c.Message, "for 24h0m0s more") {
			return
		}
	}
	t.Errorf("Examine() = %v, want network ok, and for how long", doctor.Examine(served()).Checks)
}

func TestEachFaultOfTheNetworkIsFoundWithItsFix(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*doctor.Network)
		want  string
	}{
		{
			"the certificate has ended", func(n *doctor.Network) {
				n.Certificate.Ends = time.Now().Add(-time.Minute)
				n.Err = errors.New("api.tls.certificate: ended") // as the agent reports it, too
			},
			"fail network|/etc/hostler/api.crt expired on|put a new certificate into /etc/hostler/api.crt and its key into the file of api.tls.key",
		},
		{
			"the certificate is about to end", func(n *doctor.Network) { n.Certificate.Ends = time.Now().Add(time.Minute) },
			"warn network|expires in|hostler does not renew it",
		},
		{
			"it is about to end, and a new one cannot be read", func(n *doctor.Network) {
				n.Certificate.Ends, n.Err = time.Now().Add(time.Minute), errors.New("api.tls: no PEM in it")
			},
			"fail network|expires in|api.tls: no PEM in it|retries automatically",
		},
		{
			"the certificate is not good yet", func(n *doctor.Network) { n.Certificate.Begins = time.Now().Add(time.Minute) },
			"fail network|is not valid before|`date`",
		},
		{
			"a new certificate cannot be read", func(n *doctor.Network) { n.Err = errors.New("api.tls: no PEM in it") },
			"fail network|api.tls: no PEM in it|retries automatically",
		},
		{
			"none was ever read", func(n *doctor.Network) { n.Certificate, n.Err = nil, errors.New("api.tls: no such file") },
			"fail network|api.tls: no such file|fix that",
		},
		{
			"the files are the service's own", func(n *doctor.Network) { n.Unchecked = true },
			"unknown network|not checked|see check agent",
		},
		{
			"others can read the key", func(n *doctor.Network) { n.Exposed = []string{"/etc/hostler/api.key"} },
			"warn network|/etc/hostler/api.key is the key of the agent|chmod 600 /etc/hostler/api.key",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := served()
			c.spoil(f.Network)
			finds(t, doctor.Examine(f), []string{c.want})
		})
	}
}
