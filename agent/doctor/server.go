package doctor

import (
	"cmp"
	"strings"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/internal/loop"
)

// ServerService is the name of the unit of `hostler server`.
const ServerService = "hostler-server.service"

// Server is `hostler server` on this host.
type Server struct {
	Socket  string
	Found   bool           // the socket exists
	Fault   string         // error in its configuration; empty if the server could start with it
	Problem string         // why it does not answer; empty if it does
	Status  *answer.Status // nil if it does not answer
}

// server is the server of this host; nil if it is not installed and no socket exists.
func (f Facts) server() *Server {
	if u := f.Systemd.Server; f.Server == nil || !f.Server.Found && u.LoadState != "loaded" && u.LoadState != masked {
		return nil
	}
	return f.Server
}

// serverStatus is the state of the server; nil if it does not answer.
func (f Facts) serverStatus() *answer.Status {
	if s := f.server(); s != nil {
		return s.Status
	}
	return nil
}

// ServerConfiguration says why the files of a server are not effective, and the fix. It returns nothing if
// they are effective.
func ServerConfiguration(c *answer.Configuration) (trouble, fix string) {
	switch {
	case c == nil:
		return "", ""
	case c.Fault != "":
		return "the files of the server are invalid, and it would not start with them: " + listed(c.Fault), serverFilesFix
	}
	fix = "systemctl reload hostler-server"
	if c.Restart {
		fix = "systemctl restart hostler-server"
	}
	return "the files of the server differ from its effective configuration: " + strings.Join(c.Differs, ", "), fix
}

const serverFilesFix = "correct the files until `hostler config check --server` finds no error, then systemctl restart hostler-server"

// serverRuns checks whether the server runs with the configuration in its files, and could start again.
func serverRuns(f Facts) Check {
	s, u := f.server(), f.Systemd.Server
	if s == nil {
		return Check{}
	}
	const journal = "journalctl -u hostler-server -n 50"
	unused := s.Status == nil && u.ActiveState == "inactive" && !u.AtBoot()
	var found faults
	if s.Fault != "" && !unused {
		trouble, fix := ServerConfiguration(&answer.Configuration{Fault: s.Fault})
		found.add(fail(fix, "%s", trouble))
	}
	switch {
	case s.Status != nil:
		found = append(found, serverFaults(f, *s.Status)...)
	case len(found) > 0: // the invalid files are the cause
	case u.Err != nil:
		return unknown("whether "+ServerService+" runs", u.Err)
	case unused && u.LoadState == masked:
		found.add(warn("systemctl unmask hostler-server, or remove the package hostler-server", "%s is masked", ServerService))
	case unused:
		found.add(warn("write /etc/hostler/server.yaml, then systemctl enable --now hostler-server; or remove the package", "%s is installed, but neither enabled nor started", ServerService))
	case u.ActiveState == "active":
		found.add(fail(journal+"; then systemctl restart hostler-server", "%s runs, but does not answer: %s", ServerService, s.Problem))
	case u.ActiveState != "":
		found.add(fail(journal+"; then systemctl restart hostler-server", "%s is %s, and does nothing for the fleet", ServerService, u.ActiveState))
	default:
		found.add(fail("start `hostler server`, or remove the socket", "no server answers at %s: %s", s.Socket, s.Problem))
	}
	if s.Status == nil {
		return found.or(Check{})
	}
	return found.or(ok("the server answers, version %s, and its files are valid", s.Status.Version))
}

// serverFaults returns the faults of a server that answers.
func serverFaults(f Facts, s answer.Status) (found faults) {
	if u := f.Systemd.Server; u.LoadState == "loaded" && !u.AtBoot() {
		found.add(warn("systemctl enable hostler-server", "%s does not start at the next boot", ServerService))
	}
	if trouble, fix := ServerConfiguration(s.Configuration); trouble != "" && f.Server.Fault == "" {
		found.add(warn(fix, "%s", trouble))
	}
	if s.Store.Since == nil {
		return found // without its store, loops fail: check server-store reports that
	}
	for _, l := range s.Loops {
		if !l.Healthy {
			found.add(failing(l))
		}
	}
	return found
}

func failing(l loop.Health) Check {
	return warn("follow the error; the server tries again", "loop %s fails: %s", l.Name, l.LastError)
}

// serverStore checks whether the store answers.
func serverStore(f Facts) Check {
	s := f.serverStatus()
	switch {
	case s == nil:
		return Check{}
	case s.Store.Refused:
		return fail(serverRightsFix(s.Store.Type), "the store %s at %s refuses the server, which changes nothing: %s", s.Store.Type, s.Store.Endpoint, s.Store.Error)
	case s.Store.Since == nil:
		return fail("check that it runs and is reachable from here, and store."+s.Store.Type, "the store %s at %s does not answer, and the server changes nothing: %s", s.Store.Type, s.Store.Endpoint, cmp.Or(s.Store.Error, "not yet"))
	}
	return ok("the store %s at %s answers", s.Store.Type, s.Store.Endpoint)
}

// serverRightsFix is the hint for a server that its store refuses. The error says which of the two is the
// cause.
func serverRightsFix(store string) string {
	if store == "kubernetes" {
		return "if the credentials are rejected, correct them in store.kubernetes; if a right is missing, as a cluster administrator, `kubectl apply -f /usr/share/doc/hostler-server/server-rbac.yaml`"
	}
	return "if the credentials are rejected, correct them in store." + store + "; if a right is missing, give it to the server (/usr/share/doc/hostler/docs/howto/server.md)"
}

// serverControllers checks whether each controller has a leader.
func serverControllers(f Facts) Check {
	s := f.serverStatus()
	if s == nil || s.Store.Since == nil {
		return Check{} // the check server-store has the cause
	}
	var found faults
	var fine []string
	for _, c := range s.Controllers {
		switch {
		case c.State == answer.Starting:
			found.add(fail("wait 15 s for the end of the last term; if it stays, follow the error: the server needs the rights of /usr/share/doc/hostler/docs/howto/server.md", "no server leads %s: %s", c.Name, cmp.Or(c.Message, "it is starting")))
		case c.Waits != "":
			found.add(warn("wait, then run `hostler fleet status` again", "%s does not know everything that is due: %s", c.Name, c.Waits))
		case c.State == answer.Leading:
			fine = append(fine, c.Name+": this server leads")
		case c.State == answer.Standby:
			fine = append(fine, c.Name+": "+c.Leader+" leads")
		default:
			fine = append(fine, c.Name+": "+cmp.Or(c.Message, strings.ToLower(c.State)))
		}
	}
	return found.or(ok("%s", strings.Join(fine, "; ")))
}

// serverObjects names the objects that the server cannot read or write.
func serverObjects(f Facts) Check {
	s := f.serverStatus()
	const shown = 3
	switch {
	case s == nil, s.Store.Since == nil:
		return Check{}
	case len(s.Problems) == 0:
		return ok("the server reads and writes all objects")
	}
	var found faults
	for i, p := range s.Problems {
		if i == shown {
			found.add(warn("`hostler fleet status` lists more", "%d more", len(s.Problems)-shown))
			break
		}
		found.add(warn(p.Hint, "%s: %s", p.Object, p.Message))
	}
	return found.or(Check{})
}
