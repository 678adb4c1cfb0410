package local

import (
	"encoding/json"
	"os"
)

// maxRecordBytes bounds the files of an image that are read; manifests have at most 4 MiB.
const maxRecordBytes = 8 << 20

// ReadRecord decodes a JSON file of an image, whose author chooses its size. It returns false if the
// file is too large, or cannot be read.
func ReadRecord(path string, into any) bool {
	if info, err := os.Stat(path); err != nil || info.Size() > maxRecordBytes {
		return false
	}
	text, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(text, into) == nil
}
