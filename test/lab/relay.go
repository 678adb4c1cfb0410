package lab

import (
	"io"
	"net"
	"sync"
)

// Relay forwards connections of a listener to a TCP address, until stop is called. stop closes the
// listener and all connections.
func Relay(listener net.Listener, to string) (stop func()) {
	var carried sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	carried.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // it is stopped
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			mu.Lock()
			open[near], open[far] = true, true
			mu.Unlock()
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				carried.Go(func() {
					_, _ = io.Copy(pair[0], pair[1]) // returns when either end is closed
					pair[0].Close()
					pair[1].Close()
				})
			}
		}
	})
	return func() {
		listener.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		carried.Wait()
	}
}
