package made

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/cli"
	"hostler.io/hostler/agent/config"
	serverconfig "hostler.io/hostler/controlplane/server/config"
)

// File is one that is made.
type File struct {
	Path string // below the folder of all of them
	Data []byte
}

// Release is what is packaged.
type Release struct {
	Version string    // as `hostler version` says it
	Date    time.Time // of the commit, and so of all that is made
}

// Files are the man pages, the completions, the changelog, the schema of the
// configuration, the description of the API, and the notices of the modules
// in the list: the same bytes for the same program, release and modules.
func (r Release) Files(modules io.Reader) ([]File, error) {
	configuration, err := r.configurationPage()
	if err != nil {
		return nil, err
	}
	serverConfiguration, err := r.serverConfigurationPage()
	if err != nil {
		return nil, err
	}
	notices, err := notices(modules)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, f := range append(r.commandPages(), configuration, serverConfiguration, File{"notices", notices}) {
		data, err := compressed(f.Data)
		if err != nil {
			return nil, fmt.Errorf("compress %s: %w", f.Path, err)
		}
		files = append(files, File{f.Path + ".gz", data})
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := r.completion(shell)
		if err != nil {
			return nil, err
		}
		files = append(files, File{"completions/hostler." + shell, script})
	}
	changelog, err := r.changelog()
	if err != nil {
		return nil, err
	}
	schema, err := config.Schema()
	if err != nil {
		return nil, err
	}
	serverSchema, err := serverconfig.Spec().Schema()
	if err != nil {
		return nil, err
	}
	description, err := api.OpenAPI(r.Version)
	if err != nil {
		return nil, err
	}
	return append(files, File{"changelog.yaml", changelog}, File{"hostler.schema.json", schema}, File{"hostler-server.schema.json", serverSchema}, File{"openapi.json", description}), nil
}

// completion is what the program itself prints.
func (r Release) completion(shell string) ([]byte, error) {
	var out, complaint bytes.Buffer
	p := r.process("completion", shell)
	p.Stdout, p.Stderr = &out, &complaint
	if code := cli.Run(p); code != 0 {
		return nil, fmt.Errorf("hostler completion %s ends with %d: %s", shell, code, &complaint)
	}
	return out.Bytes(), nil
}

// process is a program that nobody talks to.
func (r Release) process(args ...string) cli.Process {
	return cli.Process{
		Args: args, Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer),
		Getenv: func(string) string { return "" }, Now: func() time.Time { return r.Date }, Version: r.Version,
	}
}

// compressed is data as gzip -9n writes it, which Debian's policy asks for.
func compressed(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}
