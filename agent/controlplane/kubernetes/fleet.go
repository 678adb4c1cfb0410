package kubernetes

import (
	"context"
	"fmt"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/agent/controlplane"
)

// pageOfNodes is how many Nodes are held at a time.
const pageOfNodes = 100

// ToCompare are the rights that a node lacks unless somebody gives them: to look for
// clones of its machine in the fleet.
func ToCompare() []Right {
	return []Right{
		{Verb: "list", Resource: "nodes"},
		{Verb: "get", Group: coordinationv1.GroupName, Resource: "leases", Namespace: controlplane.LeaseNamespace},
	}
}

// NodesOf looks through all Nodes, page by page, where somebody gave the node the
// right to. It asks for that first: that a node has it not is usual.
func (c *Client) NodesOf(ctx context.Context, machineID string) ([]corev1.Node, error) {
	for _, right := range ToCompare() {
		asking, cancel := context.WithTimeout(ctx, callTimeout)
		allowed, err := c.may(asking, right)
		cancel()
		if err != nil {
			return nil, err
		}
		if !allowed {
			return nil, fmt.Errorf("%s: %w", right, controlplane.ErrForbidden)
		}
	}
	var found []corev1.Node
	for next := ""; ; {
		page, err := c.nodes(ctx, next)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			if info := page.Items[i].Status.NodeInfo; info.MachineID == machineID {
				found = append(found, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: page.Items[i].Name}, Status: corev1.NodeStatus{NodeInfo: info}})
			}
		}
		if next = page.Continue; next == "" {
			return found, nil
		}
	}
}

// nodes reads the page of all Nodes that begins there.
func (c *Client) nodes(ctx context.Context, from string) (*corev1.NodeList, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page := &corev1.NodeList{}
	err := c.ask(ctx, "list nodes", c.core, func(r rest.Interface) *rest.Request {
		request := r.Get().Resource("nodes").Param("limit", strconv.Itoa(pageOfNodes))
		if from != "" {
			request = request.Param("continue", from)
		}
		return request
	}, page)
	return page, err
}
