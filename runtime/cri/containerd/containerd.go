// Package containerd calls containerd's own services, on the same socket as CRI. They have data
// that CRI does not return: other users of images, pulls in progress, creation times of images, and
// events.
//
// It owns containerd's namespaces, records, leases and events. It changes nothing except names of
// images that CRI cannot remove. Its callers limit the calls and interpret their errors.
package containerd

import (
	"context"
	"fmt"
	"strconv"

	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/introspection/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/runtime"
)

// CRINamespace is the namespace of containerd's CRI. Other clients use other namespaces.
const CRINamespace = "k8s.io"

// Services are the services of one containerd. They are safe for concurrent use if their fields
// are.
type Services struct {
	Conn grpc.ClientConnInterface
	// Call makes one call with a deadline. Its error names the operation.
	Call func(ctx context.Context, method, what string, rpc func(context.Context) error) error
	// Images lists CRI's images.
	Images func(context.Context) ([]runtime.Image, error)
}

// inNamespace returns a context for calls in a containerd namespace.
func inNamespace(ctx context.Context, namespace string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// unlessGone drops the error that an object does not exist any more.
func unlessGone(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// Records lists containerd's own records of CRI's images that match one of the filters. There is
// one record for each name.
func (s *Services) Records(ctx context.Context, filters ...string) ([]*images.Image, error) {
	return s.records(ctx, CRINamespace, filters...)
}

func (s *Services) records(ctx context.Context, namespace string, filters ...string) ([]*images.Image, error) {
	var resp *images.ListImagesResponse
	err := s.Call(ctx, "containerd.Images.List", "list image records", func(ctx context.Context) (err error) {
		resp, err = images.NewImagesClient(s.Conn).List(inNamespace(ctx, namespace), &images.ListImagesRequest{Filters: filters})
		return err
	})
	return resp.GetImages(), err
}

// Rename replaces a record by one with another name. If the image has that name already, Rename
// only removes the record and returns false.
func (s *Services) Rename(ctx context.Context, record *images.Image, name string) (renamed bool, err error) {
	client := images.NewImagesClient(s.Conn)
	err = s.Call(ctx, "containerd.Images.Create", fmt.Sprintf("name image %q %q", record.GetName(), name), func(ctx context.Context) error {
		_, err := client.Create(inNamespace(ctx, CRINamespace), &images.CreateImageRequest{
			Image: &images.Image{Name: name, Target: record.GetTarget(), Labels: record.GetLabels()},
		})
		if status.Code(err) == codes.AlreadyExists {
			return nil
		}
		renamed = err == nil
		return err
	})
	if err != nil {
		return false, err
	}
	return renamed, s.Call(ctx, "containerd.Images.Delete", fmt.Sprintf("remove name %q of an image", record.GetName()), func(ctx context.Context) error {
		_, err := client.Delete(inNamespace(ctx, CRINamespace), &images.DeleteImageRequest{Name: record.GetName(), Target: record.GetTarget()})
		return unlessGone(err)
	})
}

// Equals returns a filter for one value of a field.
func Equals(field, value string) string { return field + "==" + strconv.Quote(value) }

// present returns a filter for objects that have the label.
func present(label string) string { return fmt.Sprintf("labels.%q", label) }

// HasCRI reports whether this containerd has loaded its CRI plugin, or has tried to.
func (s *Services) HasCRI(ctx context.Context) (bool, error) {
	var resp *introspection.PluginsResponse
	err := s.Call(ctx, "containerd.Introspection.Plugins", "list plugins", func(ctx context.Context) (err error) {
		resp, err = introspection.NewIntrospectionClient(s.Conn).Plugins(ctx, &introspection.PluginsRequest{Filters: []string{Equals("id", "cri")}})
		return err
	})
	return len(resp.GetPlugins()) > 0, err
}
