// Command spawn has the helper processes of test/lab/unit. It becomes the service manager
// (manager). It is the process of each unit that starts a program on request (serve). It tries
// there what units forbid (try). It holds connections to a server of a unit (hold).
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"hostler.io/hostler/test/lab/unit/attempt"
	"hostler.io/hostler/test/lab/unit/message"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "spawn:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 3 && args[0] == "manager":
		return manager(args[1], args[2])
	case len(args) == 3 && args[0] == "try":
		return json.NewEncoder(os.Stdout).Encode(attempt.All(args[1], args[2]))
	case len(args) == 3 && args[0] == "hold":
		return hold(args[1], args[2])
	}
	return fmt.Errorf("unknown arguments %q", args)
}

// serve starts programs that are requested over a socket, and reports their exit status.
func serve(socket string) error {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return err
	}
	defer conn.Close()
	var r message.Request
	files, err := message.Receive(conn, &r)
	if err != nil {
		return err
	}
	if len(files) < 2 {
		return errors.New("a request without standard output and standard error")
	}
	cmd := &exec.Cmd{Path: r.Path, Args: r.Args, Env: r.Env, Stdout: files[0], Stderr: files[1], ExtraFiles: files[2:]}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as systemd does
	err = cmd.Start()
	for _, f := range files {
		_ = f.Close() // only the program keeps them open
	}
	if err != nil {
		return message.Send(conn, message.Answer{Error: err.Error()})
	}
	if err := message.Send(conn, message.Answer{PID: cmd.Process.Pid}); err != nil {
		return err
	}
	_ = cmd.Wait() // the exit status is in cmd.ProcessState
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return message.Send(conn, message.Answer{PID: cmd.Process.Pid, Status: &status})
}
