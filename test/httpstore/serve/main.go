// Serve runs the server of package httpstore for a person who tries the example of a plugin
// (docs/howto/control-plane-plugin.md): over HTTPS, on this host only. It owns its certificate, and
// stores files only while it runs.
package main

import (
	"encoding/pem"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"os/signal"
	"syscall"

	"hostler.io/hostler/test/httpstore"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8443", "the address to serve, of this host's loopback: the certificate holds no other")
	ca := flag.String("ca", "fleet-ca.crt", "file to write its certificate into, for who is to trust it")
	flag.Parse()
	if err := run(*listen, *ca); err != nil {
		log.Fatal(err)
	}
}

func run(listen, ca string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := httptest.NewUnstartedServer(httpstore.New())
	server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	defer server.Close()
	proof := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, proof, 0o644); err != nil {
		return err
	}
	fmt.Printf("serving %s, with the certificate in %s\n", server.URL, ca)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
	return nil
}
