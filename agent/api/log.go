package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
)

// LogReader returns the output of a container. Its method is safe for concurrent use.
type LogReader interface {
	// ContainerLog returns the last lines, at most MaxLogBytes.
	ContainerLog(ctx context.Context, req LogRequest) ([]byte, error)
}

// LogRequest names a container by its pod. If several containers have this name, it is the newest.
type LogRequest struct {
	Namespace string // empty if the runtime has no namespaces
	Pod       string
	Container string
	Lines     int
}

const (
	// MaxLogBytes is the maximum size of the log in one answer.
	MaxLogBytes = 1 << 20
	// noNamespace stands for an empty namespace in a path. It is not a valid namespace.
	noNamespace = "-"

	standardLines, maxLines = 100, 10000
)

// logPath returns the path of the route.
const logPath = "/v1/pods/{namespace}/{name}/containers/{container}/log"

func logRoutes(b LogReader) []route {
	return []route{{"GET " + logPath, act, network, containerLog(b), "The last lines of a container log, at most 1 MiB. tail= sets how many lines (default 100). Use `-` for a pod without namespace.", nil, nil, plainText}}
}

func containerLog(b LogReader) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req := LogRequest{Namespace: r.PathValue("namespace"), Pod: r.PathValue("name"), Container: r.PathValue("container"), Lines: standardLines}
		if req.Namespace == noNamespace {
			req.Namespace = ""
		}
		if text, given := r.URL.Query()["tail"]; given {
			var err error
			if req.Lines, err = strconv.Atoi(text[0]); err != nil || req.Lines < 1 || req.Lines > maxLines {
				fail(w, http.StatusBadRequest, &Error{Message: fmt.Sprintf("tail=%q is not a number of lines", text[0]), Hint: fmt.Sprintf("use 1 to %d", maxLines)})
				return
			}
		}
		text, err := b.ContainerLog(r.Context(), req)
		if err != nil {
			failed(w, err)
			return
		}
		w.Header().Set("Content-Type", plainText+"; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff") // the content comes from a container and is not trusted
		_, _ = w.Write(text)                                // as in answer
	}
}
