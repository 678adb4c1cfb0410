package inspect

import (
	"context"
	"fmt"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/etcd/endpoint"
)

// etcdAlone checks etcd if the agent does not answer.
func etcdAlone(ctx context.Context, cfg config.Config, mine bool) (*doctor.Etcd, error) {
	if cfg.ControlPlane.Type != etcd.Type {
		return nil, nil
	}
	if c := cfg.ControlPlane.Etcd; servicesOwn(c.TLS.CA, c.TLS.Certificate, c.TLS.Key, c.PasswordFile) {
		return &doctor.Etcd{Unchecked: true}, nil
	}
	name, err := open.NodeName(cfg)
	if err != nil {
		return nil, err
	}
	e := Etcd(ctx, cfg, name, "doctor")
	if e.Managed = mine; !mine || cfg.Lease.Enabled == config.Off {
		e.LeaseExpired = ""
	}
	return e, nil
}

// Etcd queries each etcd member with this host's credentials.
func Etcd(ctx context.Context, cfg config.Config, node, version string) *doctor.Etcd {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	o := etcd.OptionsOf(cfg.ControlPlane.Etcd, "controlPlane.etcd", version)
	o.Pods = cfg.Status.Pods
	e := &doctor.Etcd{StoreState: doctor.StoreState{Node: node}, User: o.Username}
	var secrets []string
	for _, file := range []string{o.Key, o.PasswordFile} {
		if file != "" {
			secrets = append(secrets, file)
		}
	}
	e.Exposed = Exposed(secrets)
	for _, to := range o.Endpoints {
		if endpoint.Plain(to) && endpoint.Check(to, false, "") != nil {
			e.Plain = append(e.Plain, to)
		}
	}
	for _, f := range [][2]string{{"--cacert=", o.CA}, {"--cert=", o.Certificate}, {"--key=", o.Key}} {
		if f[1] != "" {
			e.TLS = append(e.TLS, f[0]+f[1])
		}
	}
	begins, ends, err := o.Validity()
	if e.Err = err; err == nil && !ends.IsZero() {
		e.Certificate = &doctor.Certificate{Path: o.Certificate, Begins: begins, Ends: ends}
	}
	s := etcd.Diagnose(ctx, o, node)
	for _, m := range s.Members {
		e.Members = append(e.Members, doctor.Member{Endpoint: m.Endpoint, Err: m.Err})
	}
	e.Found, e.MissingRights, e.SettingUnreadable, e.Grants, e.RightsErr = s.Node, s.MissingRights, s.Unreachable, s.Grants, s.RightsErr
	e.Weaknesses = s.Weaknesses
	if s.Node && s.Leaseless {
		e.LeaseExpired = fmt.Sprintf("there is a node %s and no lease of it", node)
	}
	return e
}
