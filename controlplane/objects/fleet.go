package objects

import (
	"bytes"
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// EndsLeases reports whether the store deletes expired Leases. It is true unless the store is an
// Ender and denies it.
func (c *Client) EndsLeases() bool {
	ender, may := c.store.(Ender)
	return !may || ender.Ends()
}

// Fleet calls each for all Nodes with their Leases. Unreadable objects are left out, and
// ErrIncomplete names them at the end.
func (c *Client) Fleet(ctx context.Context, each controlplane.Member) error {
	var unreadable controlplane.Skipped
	if err := controlplane.JoinFleet(ctx, pagesOf[corev1.Node](c, Node, &unreadable), pagesOf[coordinationv1.Lease](c, Lease, &unreadable), each); err != nil {
		return err
	}
	return unreadable.Err()
}

// pagesOf reads the objects of a kind once, except unreadable ones. Pages that are not in order are
// an error: Nodes would seem to have no Leases. A page whose objects together have too many values is
// returned in parts.
func pagesOf[T any, P object[T]](c *Client, kind Kind, unreadable *controlplane.Skipped) controlplane.Pages[T] {
	var last, next string
	var rest []Object // of the page
	read := func(ctx context.Context, page string) (err error) {
		if ctx.Err() != nil {
			return fmt.Errorf("list %s: %w", kind, context.Cause(ctx))
		}
		ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, controlplane.ErrNoAnswer)
		defer cancel()
		rest, next, err = c.store.List(ctx, kind, "", page)
		if err == nil && next != "" && next == page {
			err = fmt.Errorf("list %s: %w: %s at %s returned page %q as its own next page", kind, controlplane.ErrUnavailable, c.Type(), c.Endpoint(), page)
		}
		if err == nil && len(rest) > 0 {
			if first := rest[0].Key.String(); first <= last {
				err = fmt.Errorf("list %s: %w: %s at %s returned a page with %s after one with %s", kind, controlplane.ErrUnavailable, c.Type(), c.Endpoint(), first, last)
			}
			last = rest[len(rest)-1].Key.String()
		}
		return err
	}
	return func(ctx context.Context, page string) (part []T, _ string, err error) {
		if len(rest) == 0 {
			if err := read(ctx, page); err != nil {
				return nil, "", err
			}
		}
		left := controlplane.MostValues
		for ; len(rest) > 0; rest = rest[1:] {
			o := rest[0]
			if values, _ := controlplane.CountValues(o.Value); values > left && left < controlplane.MostValues {
				return part, restOfPage, nil
			}
			p, err := decodeWithin[T, P](o.Key, o.Value, o.Version, &left)
			if err != nil {
				unreadable.Add(err)
				continue
			}
			part = append(part, *p)
		}
		return part, next, nil
	}
}

// restOfPage stands for the next page while parts of a page are left.
const restOfPage = "rest"

// LeaseDuration is the setting with which the store requests a Lease duration from all hosts.
// Without it, no duration is requested.
const LeaseDuration = store.LeaseDuration

// longestSetting is the maximum number of bytes that are read of a setting.
const longestSetting = 100

// WatchPace implements controlplane.Pacer.
func (c *Client) WatchPace(ctx context.Context, seen chan<- string) error {
	key := Key{Kind: Setting, Node: LeaseDuration}
	return follow(ctx, c.store, key, seen, func(state Object) (string, error) {
		if state.Version == None {
			return "", nil
		}
		return SettingText(state.Value), nil
	})
}

// SettingText returns a setting as hosts read it.
func SettingText(value []byte) string {
	return string(bytes.TrimSpace(value[:min(len(value), longestSetting)]))
}
