package made

import (
	"fmt"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// title begins a page in markdown.
func (r Release) title(name string, section int) string {
	return fmt.Sprintf("%% %q %q %q %q %q\n", strings.ToUpper(name), fmt.Sprint(section), r.Date.UTC().Format("2006-01-02"), "hostler "+r.Version, "hostler")
}

// page makes a page of markdown.
func page(path, text string) File { return File{path, md2man.Render([]byte(text))} }

// markdown has text read by markdown as it stands.
func markdown(text string) string {
	return strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", `\<`, ">", `\>`, "[", `\[`, "]", `\]`, "#", `\#`, "|", `\|`).Replace(text)
}
