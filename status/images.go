package status

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/runtime"
)

// maxImageNames bounds the names of an image in a Node's status, as in kubelet.
const maxImageNames = 5

// Largest returns the images for a Node's status, the largest first: at most limit, or all with -1.
// It does not keep the rest in memory.
func Largest(all []runtime.Image, limit int) []runtime.Image {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		// The ID makes the order, and so the status, deterministic.
		return cmp.Or(cmp.Compare(all[b].SizeBytes, all[a].SizeBytes), cmp.Compare(all[a].ID, all[b].ID))
	})
	if limit >= 0 && len(order) > limit {
		order = order[:limit]
	}
	largest := make([]runtime.Image, len(order))
	for i, at := range order {
		largest[i] = all[at]
	}
	return largest
}

func images(all []runtime.Image, limit int) []corev1.ContainerImage {
	var result []corev1.ContainerImage
	for _, img := range Largest(all, limit) {
		result = append(result, corev1.ContainerImage{Names: imageNames(img), SizeBytes: int64(img.SizeBytes)})
	}
	return result
}

// imageNames returns digests before tags, as kubelet does. It always includes a tag if there is
// one, because people know an image by its tag.
func imageNames(img runtime.Image) []string {
	digests := img.Digests
	if len(img.Tags) > 0 && len(digests) >= maxImageNames {
		digests = digests[:maxImageNames-1]
	}
	names := slices.Concat(digests, img.Tags)
	if len(names) == 0 {
		return []string{img.ID}
	}
	return names[:min(len(names), maxImageNames)]
}
