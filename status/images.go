package status

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/runtime"
)

// maxImageNames is how many names of an image go into a Node's status, as in
// kubelet.
const maxImageNames = 5

// images lists the largest images first, at most limit of them; -1 lists all.
func images(all []runtime.Image, limit int) []corev1.ContainerImage {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		// The ID makes the order, and so the status, the same each time.
		return cmp.Or(cmp.Compare(all[b].SizeBytes, all[a].SizeBytes), cmp.Compare(all[a].ID, all[b].ID))
	})
	if limit >= 0 && len(order) > limit {
		order = order[:limit]
	}
	var result []corev1.ContainerImage
	for _, i := range order {
		result = append(result, corev1.ContainerImage{Names: imageNames(all[i]), SizeBytes: int64(all[i].SizeBytes)})
	}
	return result
}

// imageNames gives digests before tags, as kubelet does, but leaves room for one
// tag: it is what people know an image by.
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
