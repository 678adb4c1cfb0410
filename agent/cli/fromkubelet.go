package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/config/fromkubelet"
)

// fromKubeletCommand prints a configuration for who comes from a kubelet.
func (a *app) fromKubeletCommand() *cobra.Command {
	return &cobra.Command{
		Use:                   "from-kubelet FILE [-- KUBELET-FLAG...]",
		DisableFlagsInUseLine: true,
		Short:                 "Print a kubelet's configuration as hostler's",
		Long: `Print a KubeletConfiguration, and the flags of the same kubelet, as a
configuration for hostler: each key with a comment that says where it came
from, and at the end what hostler has no counterpart for.

A kubelet closes no pods at a shutdown unless its configuration says so, and
what comes of it says the same: look at "shutdown" in what is printed.`,
		Example: `  hostler config from-kubelet /var/lib/kubelet/config.yaml
  hostler config from-kubelet config.yaml -- --node-ip=192.0.2.12 --max-pods 60`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if behind := cmd.ArgsLenAtDash(); behind > 1 || behind < 0 && len(args) > 1 {
				return usageError("one FILE is wanted, and flags of the kubelet behind --\nhint: convert each file of a --config-dir by itself")
			}
			data, err := limited(args[0])
			if err != nil {
				return err
			}
			text, err := fromkubelet.Convert(args[0], data, args[1:])
			if _, werr := a.Stdout.Write(text); err == nil {
				err = werr
			}
			var faults config.Faults
			if errors.As(err, &faults) {
				fmt.Fprintln(a.Stderr, faults.Error())
				return silentError{}
			}
			return err
		},
	}
}

// longestFile is more than any configuration has.
const longestFile = 4 << 20

// limited reads a file that somebody named, which may be anything.
func limited(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, longestFile+1))
	if err == nil && len(data) > longestFile {
		err = fmt.Errorf("read %s: it is larger than %d MiB", name, longestFile>>20)
	}
	return data, err
}
