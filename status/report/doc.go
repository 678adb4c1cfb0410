// Package report tells the control plane how this host is: its Node, what a person
// decided of its cordon, and how its shutdowns went. It owns what is written when,
// and what is kept on disk until it can be told: the last word of a boot, Events,
// a cordon. It refuses to judge the host, and to know any control plane.
package report
