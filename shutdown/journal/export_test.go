package journal

import "encoding/json"

// Decode decodes a journal, and returns the verdict of the next boot.
func Decode(data []byte) (*Record, error) {
	file, err := decode(data)
	if err != nil {
		return nil, err
	}
	return file.verdict(), nil
}

// Recode decodes a journal and encodes it again.
func Recode(data []byte) ([]byte, error) {
	file, err := decode(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file)
}
