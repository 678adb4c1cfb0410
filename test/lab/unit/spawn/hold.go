package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// holdTime limits the time of a connection attempt, including the wait for a full queue.
	holdTime = 10 * time.Minute
	// pace is the pause between new connections when all are open.
	pace = 10 * time.Millisecond
)

// hold opens count connections to an address, host:port or the path of a socket. Each makes one
// request that the server answers; then it stays open. hold reports that all are open, and then
// replaces them one by one, until its standard input ends.
func hold(address, count string) error {
	to, err := socketAddress(address)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	held := make([]int, n)
	for i := range held {
		if held[i], err = connect(to); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	fmt.Println("held")
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
		close(ended)
	}()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % n {
		select {
		case <-tick.C:
		case <-ended:
			return nil
		}
		if fd, err := connect(to); err == nil { // on an error the server has stopped listening
			_ = unix.Close(held[i])
			held[i] = fd
		}
	}
}

// socketAddress converts an address for the kernel.
func socketAddress(address string) (unix.Sockaddr, error) {
	if strings.HasPrefix(address, "/") {
		return &unix.SockaddrUnix{Name: address}, nil
	}
	tcp, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	return &unix.SockaddrInet4{Addr: [4]byte(tcp.IP.To4()), Port: tcp.Port}, nil
}

// connect opens a connection and makes a request that costs the server little. It does not read the
// answer.
func connect(to unix.Sockaddr) (fd int, err error) {
	family := unix.AF_INET
	if _, is := to.(*unix.SockaddrUnix); is {
		family = unix.AF_UNIX
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	limit := unix.NsecToTimeval(int64(holdTime)) // also for connect(2), see socket(7)
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err == nil {
		for err = unix.EINTR; err == unix.EINTR; {
			err = unix.Connect(fd, to)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	_ = unix.Sendto(fd, []byte("GET /nothing HTTP/1.1\r\nHost: hostler\r\n\r\n"), syscall.MSG_NOSIGNAL, nil)
	return fd, nil
}
