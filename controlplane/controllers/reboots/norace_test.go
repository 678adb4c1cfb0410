//go:build !race

package reboots_test

const raced = false
