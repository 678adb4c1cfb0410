package etcd

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/store"
)

// settingsFolder follows the prefix. Hosts read its keys one by one.
const settingsFolder = "/settings/"

// recordSuffix ends the name of the key that records which value a server has stored for a setting.
const recordSuffix = ".server"

var _ store.Settings = (*Fleet)(nil)

// settingState is a setting with its record. Both are written in one transaction. So a person's
// write has another revision, even with the same value. A key that does not exist has the revision
// 0.
type settingState struct {
	cluster       uint64
	value, record *mvccpb.KeyValue
}

func (s settingState) setting() store.Setting {
	text := objects.SettingText(s.value.Value)
	return store.Setting{
		Value:   text,
		Own:     text != "" && s.value.ModRevision == s.record.ModRevision && bytes.Equal(s.value.Value, s.record.Value),
		Version: versionOf(s.cluster, s.value).String() + " " + versionOf(s.cluster, s.record).String(),
	}
}

// Setting implements store.Settings.
func (f *Fleet) Setting(ctx context.Context, name string) (store.Setting, error) {
	var found store.Setting
	err := f.callSetting(ctx, "get", "read", name, func(ctx context.Context, c *conn, path string) error {
		stored, err := c.setting(ctx, path)
		if err == nil {
			found = stored.setting()
		}
		return err
	})
	if err != nil {
		return store.Setting{}, err
	}
	return found, nil
}

// Set implements store.Settings. It reads the setting again, over the connection that it writes
// over, as Update does.
func (f *Fleet) Set(ctx context.Context, name string, before store.Setting, value string, term store.Term) error {
	return f.callSetting(ctx, "set", "write", name, func(ctx context.Context, c *conn, path string) error {
		stored, err := c.setting(ctx, path)
		if err != nil {
			return err
		}
		if found := stored.setting(); found.Persons() || found != before {
			return fmt.Errorf("%w: another client has changed it", controlplane.ErrConflict)
		}
		record := path + recordSuffix
		then := []clientv3.Op{clientv3.OpDelete(path), clientv3.OpDelete(record)}
		if value != "" {
			then = []clientv3.Op{clientv3.OpPut(path, value), clientv3.OpPut(record, value)}
		}
		_, err = f.swap(ctx, c, nil, append(unchanged(path, stored.value), unchanged(record, stored.record)...), term, then...)
		return err
	})
}

// setting reads a setting and its record at the same revision.
func (c *conn) setting(ctx context.Context, path string) (settingState, error) {
	answer, err := c.kv.Txn(ctx).Then(clientv3.OpGet(path), clientv3.OpGet(path+recordSuffix)).Commit()
	if err != nil {
		return settingState{}, err
	}
	stored := func(i int) *mvccpb.KeyValue {
		if found := answer.Responses[i].GetResponseRange().GetKvs(); len(found) > 0 {
			return found[0]
		}
		return &mvccpb.KeyValue{}
	}
	return settingState{answer.Header.ClusterId, stored(0), stored(1)}, nil
}

// callSetting makes a call on a setting.
func (f *Fleet) callSetting(ctx context.Context, operation, right, name string, request func(ctx context.Context, c *conn, path string) error) error {
	if err := controlplane.CheckCall(ctx, operation+" settings", name); err != nil {
		return err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	path := f.o.Prefix + settingsFolder + name
	return f.dialer.call(ctx, f.on(operation, right, path), func(ctx context.Context, c *conn) error { return request(ctx, c, path) })
}
