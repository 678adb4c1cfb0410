package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"hostler.io/hostler/test/machine/wire"
)

// agentSocket is the default socket of hostler's API.
const agentSocket = "/run/hostler/hostler.sock"

// askTimeout limits a request. The caller repeats it.
const askTimeout = 30 * time.Second

// ask reads a path of the agent's API, and sends the answer as a command's output.
func ask(path string, send func(wire.Message)) {
	answer, err := get(path)
	if err != nil {
		send(wire.Message{Stderr: fmt.Appendf(nil, "ask hostler for %s: %v\n", path, err), Exit: &wire.Exit{Code: 1}})
		return
	}
	for chunk := range slices.Chunk(answer, wire.Chunk) {
		send(wire.Message{Stdout: chunk})
	}
	send(wire.Message{Exit: &wire.Exit{}})
}

func get(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://hostler"+path, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", agentSocket)
		},
	}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return answer, err
}
