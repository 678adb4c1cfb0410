package etcd

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
)

// pageSize is the number of objects in a page, if they fit in maxMessageBytes. A Node takes about
// 10 kB, and a server holds a whole answer in memory.
const pageSize = 200

// List reads a page of objects. Each page shows the objects at the time of its read.
func (s *Store) List(ctx context.Context, kind objects.Kind, node, page string) ([]objects.Object, string, error) {
	ctx, cancel := bound(ctx, kind)
	defer cancel()
	folder := s.folder(kind, node)
	operation := call{operation: "list", object: strings.TrimPrefix(folder, s.o.Prefix+"/"), right: "read", path: folder}
	if kind == objects.Event {
		operation.role, operation.all = hostRole(node), func() []right { return s.rights(node) }
	} else {
		operation.role, operation.all = readerRole, s.readerRights
	}
	begin := folder
	if page != "" {
		if begin = page + "\x00"; !strings.HasPrefix(page, folder) {
			return nil, "", fmt.Errorf("list %s: %w: no page %q", operation.object, controlplane.ErrInvalid, page)
		}
	}
	var found []objects.Object
	next := ""
	err := s.dialer.call(ctx, operation, func(ctx context.Context, c *conn) error {
		answer, err := c.page(ctx, folder, begin)
		if err != nil {
			return err
		}
		for _, kv := range answer.Kvs {
			if key, ok := s.keyAt(string(kv.Key)); ok {
				version := objects.Version(versionOf(answer.Header.ClusterId, kv).String())
				found = append(found, objects.Object{Key: key, Value: kv.Value, Version: version})
			}
		}
		if answer.More && len(answer.Kvs) > 0 {
			next = string(answer.Kvs[len(answer.Kvs)-1].Key)
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return found, next, nil
}

// page reads keys of a folder that begin at a key: as many as fit into an answer.
func (c *conn) page(ctx context.Context, folder, begin string) (answer *clientv3.GetResponse, err error) {
	for most := int64(pageSize); most > 0; most /= 10 {
		answer, err = c.kv.Get(ctx, begin, clientv3.WithRange(clientv3.GetPrefixRangeEnd(folder)), clientv3.WithLimit(most))
		if !tooLarge(err) {
			break
		}
	}
	return answer, err
}
