package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	v1 "hostler.io/hostler/controlplane/plugin/v1"
)

// wire returns the key in the form of the protocol.
func wire(k objects.Key) *v1.Key {
	return &v1.Key{Kind: string(k.Kind), Node: k.Node, Name: k.Name}
}

// object returns the object of an answer if the answer has the requested key. The callers check its
// value.
func (s *Store) object(operation string, key objects.Key, answer *v1.Object) (objects.Object, error) {
	if answer == nil {
		return objects.Object{}, s.invalidAnswer(operation, "returned no object")
	}
	if k := answer.GetKey(); k.GetKind() != string(key.Kind) || k.GetNode() != key.Node || k.GetName() != key.Name {
		return objects.Object{}, s.invalidAnswer(operation, "returned another key: kind %q, node %q, name %q", k.GetKind(), k.GetNode(), k.GetName())
	}
	if answer.GetVersion() == "" {
		return objects.Object{Key: key}, nil
	}
	return objects.Object{Key: key, Value: answer.GetValue(), Version: objects.Version(answer.GetVersion())}, nil
}

// do makes one call. If the plugin has not answered Info yet, it calls that first.
func (s *Store) do(ctx context.Context, operation string, rpc func(context.Context, about) error) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", operation, context.Cause(ctx))
	}
	a, err := s.info(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if err := rpc(ctx, a); err != nil {
		return s.fault(ctx, operation, err)
	}
	return nil
}

// Get implements objects.Store.
func (s *Store) Get(ctx context.Context, key objects.Key) (objects.Object, error) {
	operation := "get " + key.String()
	var answer *v1.GetResponse
	err := s.do(ctx, operation, func(ctx context.Context, _ about) (err error) {
		answer, err = s.rpc.Get(ctx, &v1.GetRequest{Key: wire(key)})
		return err
	})
	if err != nil {
		return objects.Object{}, reading(err)
	}
	o, err := s.object(operation, key, answer.GetObject())
	if err == nil && o.Version == objects.None {
		err = s.invalidAnswer(operation, "returned no version")
	}
	if err != nil {
		return objects.Object{}, err
	}
	return o, nil
}

// reading returns the error of a read. A read cannot conflict and sends nothing large, so such
// errors count as ErrUnavailable.
func reading(err error) error {
	if errors.Is(err, errLarge) {
		return fmt.Errorf("%w: %v: its answer is larger than protocol %d allows: check how large its stored objects are", controlplane.ErrUnavailable, err, protocol)
	}
	if errors.Is(err, controlplane.ErrConflict) {
		return fmt.Errorf("%w: %v", controlplane.ErrUnavailable, err)
	}
	return err
}

// Put implements objects.Store.
func (s *Store) Put(ctx context.Context, key objects.Key, put objects.Put) (objects.Version, error) {
	operation := "put " + key.String()
	if len(put.Value) > maxValueBytes {
		return "", fmt.Errorf("%s: %w: %d bytes, the limit of plugins is %d: lower status.maxImages so that the Node lists fewer images", operation, controlplane.ErrInvalid, len(put.Value), maxValueBytes)
	}
	var answer *v1.PutResponse
	err := s.do(ctx, operation, func(ctx context.Context, _ about) (err error) {
		answer, err = s.rpc.Put(ctx, &v1.PutRequest{Key: wire(key), Value: put.Value, Instead: string(put.Instead), TtlSeconds: int64(put.TTL / time.Second)})
		return err
	})
	if err != nil {
		return "", s.lost(ctx, key, err)
	}
	if stored := answer.GetConflict(); stored != nil {
		return "", s.conflict(operation, key, put.Instead, stored)
	}
	if answer.GetVersion() == "" {
		return "", s.invalidAnswer(operation, "returned no version")
	}
	return objects.Version(answer.GetVersion()), nil
}

// Delete implements objects.Store.
func (s *Store) Delete(ctx context.Context, key objects.Key, version objects.Version) error {
	operation := "delete " + key.String()
	var answer *v1.DeleteResponse
	err := s.do(ctx, operation, func(ctx context.Context, _ about) (err error) {
		answer, err = s.rpc.Delete(ctx, &v1.DeleteRequest{Key: wire(key), Version: string(version)})
		return err
	})
	switch {
	case version == objects.None && errors.Is(err, controlplane.ErrNotFound):
		return nil
	case err != nil:
		return s.lost(ctx, key, err)
	case answer.GetConflict() == nil:
		return nil
	case version == objects.None:
		return s.invalidAnswer(operation, "refuses an unconditional delete because the object exists")
	}
	return s.conflict(operation, key, version, answer.GetConflict())
}

// conflict returns the error of a write that the plugin refused with the stored object.
func (s *Store) conflict(operation string, key objects.Key, wanted objects.Version, answer *v1.Object) error {
	stored, err := s.object(operation, key, answer)
	if err != nil {
		return err
	}
	if stored.Version == wanted {
		return s.invalidAnswer(operation, "refuses version %q, which it reports as the current one", wanted)
	}
	return &objects.ConflictError{Stored: stored, Err: fmt.Errorf("%s: %s: %w", operation, s.name(), controlplane.ErrConflict)}
}

// lost returns the error of a failed write. For a conflict, it contains the stored object. If the
// plugin did not return that, it is read.
func (s *Store) lost(ctx context.Context, key objects.Key, err error) error {
	switch {
	case errors.Is(err, controlplane.ErrNotFound):
		err = fmt.Errorf("%w: %v", controlplane.ErrConflict, err)
	case !errors.Is(err, controlplane.ErrConflict):
		return err
	}
	stored, failed := s.Get(ctx, key)
	if errors.Is(failed, controlplane.ErrNotFound) {
		stored, failed = objects.Object{Key: key}, nil
	}
	if failed != nil {
		return failed
	}
	return &objects.ConflictError{Stored: stored, Err: err}
}

// List implements objects.Store.
func (s *Store) List(ctx context.Context, kind objects.Kind, node, page string) (list []objects.Object, next string, err error) {
	operation := "list " + string(kind)
	var answer *v1.ListResponse
	err = s.do(ctx, operation, func(ctx context.Context, a about) (err error) {
		if !a.list {
			return status.Error(codes.Unimplemented, "reported by the plugin")
		}
		answer, err = s.rpc.List(ctx, &v1.ListRequest{Kind: string(kind), Node: node, Page: page}, grpc.MaxCallRecvMsgSize(maxPageBytes))
		return err
	})
	if errors.Is(err, errUnimplemented) {
		return nil, "", fmt.Errorf("%s: %s: %w: it does not implement List (%w): use the tools of its control plane to see other hosts", operation, s.name(), controlplane.ErrForbidden, errUnimplemented)
	}
	if err != nil {
		return nil, "", reading(err)
	}
	last := objects.Key{Kind: kind}
	for _, o := range answer.GetObjects() {
		key := objects.Key{Kind: objects.Kind(o.GetKey().GetKind()), Node: o.GetKey().GetNode(), Name: o.GetKey().GetName()}
		if key.Kind != kind || node != "" && key.Node != node || key.String() <= last.String() && last.Node != "" {
			return nil, "", s.invalidAnswer(operation, "returned %s after %s: not requested, or not in order", key, last)
		}
		read, err := s.object(operation, key, o)
		if err == nil && read.Version == objects.None {
			err = s.invalidAnswer(operation, "returned %s without a version", key)
		}
		if err != nil {
			return nil, "", err
		}
		list, last = append(list, read), key
	}
	if next = answer.GetNext(); next != "" && next == page {
		return nil, "", s.invalidAnswer(operation, "returned page %q as its own next page", page)
	}
	return list, next, nil
}
