package meter

import "time"

// Weigh reads the folders above path, at most this many entries.
func Weigh(path string, most int) error {
	_, err := weigh(path, "", most, time.Now().Add(time.Minute))
	return err
}
