package generated

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// tools are the code generators, as `go tool` runs them.
var tools = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

// Protocol returns the files that are generated from a .proto file, by path below root. The error
// contains the messages of the compiler or a generator.
func Protocol(ctx context.Context, root, file string) (map[string][]byte, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // the generators copy the comments
	}
	files, err := compiler.Compile(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", file, err)
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(files[0])},
	})
	if err != nil {
		return nil, fmt.Errorf("ask for the Go of %s: %w", file, err)
	}
	made := map[string][]byte{}
	for _, tool := range tools {
		var answer pluginpb.CodeGeneratorResponse
		out, err := run(ctx, root, request, tool)
		if err == nil {
			err = proto.Unmarshal(out, &answer)
		}
		if err == nil && answer.GetError() != "" {
			err = fmt.Errorf("%s: %s", tool, answer.GetError())
		}
		if err != nil {
			return nil, fmt.Errorf("make the Go of %s: %w", file, err)
		}
		for _, f := range answer.GetFile() {
			text, err := run(ctx, root, []byte(f.GetContent()), "gofumpt")
			if err != nil {
				return nil, fmt.Errorf("format %s: %w", f.GetName(), err)
			}
			made[f.GetName()] = text
		}
	}
	return made, nil
}

// run runs a tool of the module with that standard input.
func run(ctx context.Context, root string, in []byte, tool string) ([]byte, error) {
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "tool", tool)
	cmd.Dir = filepath.Clean(root)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go tool %s: %w\n%s", tool, err, complaint.Bytes())
	}
	return out, nil
}
