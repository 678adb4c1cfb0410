package journal

import "encoding/json"

// Decode reads a journal's bytes, and returns what the next boot makes of them.
func Decode(data []byte) (*Record, error) {
	file, err := decode(data)
	if err != nil {
		return nil, err
	}
	return file.verdict(), nil
}

// Recode reads a journal's bytes and writes them again.
func Recode(data []byte) ([]byte, error) {
	file, err := decode(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file)
}
