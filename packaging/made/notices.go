package made

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// notice is how files are called whose text a binary has to be accompanied by.
var notice = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// notices are the licenses and notices of the modules that a binary is made of, which most
// of them want to be handed on with it. Each line of list is a module, a blank, and the
// folder that it lies in. A module without any is an error.
func notices(list io.Reader) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("hostler is made of these modules, each under its own license.\n")
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		module, folder, _ := strings.Cut(lines.Text(), " ")
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, fmt.Errorf("read the license of %s: %w", module, err)
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !notice.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				return nil, fmt.Errorf("read the license of %s: %w", module, err)
			}
			found = true
			fmt.Fprintf(&b, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), module, e.Name(), bytes.TrimSpace(text))
		}
		if !found {
			return nil, fmt.Errorf("read the license of %s: there is none in %s; say in packaging/made/notices.go what its file is called, or do without the module", module, folder)
		}
	}
	return b.Bytes(), lines.Err()
}
