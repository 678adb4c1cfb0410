// Command fleet prints the hosts that hostler stores in etcd: docs/reference/etcd.md links to it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
)

func main() {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Getenv("ETCDCTL_ENDPOINTS"), ","), DialTimeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	answer, err := etcd.Txn(ctx).Then( // both at the same revision
		clientv3.OpGet("/hostler/nodes/", clientv3.WithPrefix()),
		clientv3.OpGet("/hostler/leases/", clientv3.WithPrefix(), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		log.Fatal(err)
	}
	alive := map[string]bool{}
	for _, kv := range answer.Responses[1].GetResponseRange().Kvs {
		alive[path.Base(string(kv.Key))] = true
	}
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		var node corev1.Node
		if err := json.Unmarshal(kv.Value, &node); err != nil {
			log.Fatalf("%s: %v", kv.Key, err)
		}
		state := "dead, as far as anybody knows"
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && alive[node.Name] {
				state = fmt.Sprintf("alive, Ready is %s: %s", c.Status, c.Message)
			}
		}
		fmt.Printf("%s: %s\n", node.Name, state)
	}
}
