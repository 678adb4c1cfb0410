package fromkubelet

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/agent/config"
)

// flagged are the flags of a kubelet that are no key of its file in other letters: by
// name, the key that says the same, and how their text is read, nil for a number, a word
// or a duration.
var flagged = map[string]struct {
	key   string
	parse func(text string) (any, error)
}{
	"eviction-hard":              {"evictionHard", pairs("<")},
	"eviction-minimum-reclaim":   {"evictionMinimumReclaim", pairs("=")},
	"eviction-soft":              {"evictionSoft", pairs("<")},
	"image-gc-high-threshold":    {"imageGCHighThresholdPercent", nil},
	"image-gc-low-threshold":     {"imageGCLowThresholdPercent", nil},
	"kube-reserved":              {"kubeReserved", pairs("=")},
	"minimum-image-ttl-duration": {"imageMinimumGCAge", nil},
	"node-labels":                {"--node-labels", pairs("=")},
	"pod-manifest-path":          {"staticPodPath", nil},
	"register-with-taints":       {"registerWithTaints", taints},
	"system-reserved":            {"systemReserved", pairs("=")},
}

// keyOf is the key of a kubelet's file that a flag is in other letters, such as maxPods of
// max-pods; the flag itself where there is none.
func keyOf(name string) string {
	letters := strings.ReplaceAll(name, "-", "")
	for key := range rules() {
		if strings.EqualFold(key, letters) {
			return key
		}
	}
	for _, r := range reasons {
		for _, key := range r.keys {
			if strings.EqualFold(key, letters) {
				return key
			}
		}
	}
	return "--" + name
}

// flags takes the arguments of a kubelet: --name=value, --name value, or --name alone for
// true. The program's own name may stand before them.
func (k *kubelet) flags(args []string) error {
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "" })
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		args = args[1:]
	}
	for len(args) > 0 {
		name, value, joined := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
		if !strings.HasPrefix(args[0], "-") || name == "" {
			return fmt.Errorf("%q is no flag of a kubelet\nhint: write what the kubelet is started with behind --, such as `-- --node-ip=192.0.2.10`", args[0])
		}
		args = args[1:]
		switch {
		case joined:
		case len(args) > 0 && !strings.HasPrefix(args[0], "-"):
			value, args = args[0], args[1:]
		default:
			value = "true"
		}
		k.flag(strings.ReplaceAll(name, "_", "-"), value)
	}
	if len(k.faults) > 0 {
		return k.faults
	}
	return nil
}

func (k *kubelet) flag(name, text string) {
	g := given{key: keyOf(name), from: "--" + name, value: &yaml.Node{Kind: yaml.ScalarNode, Value: text}}
	if known, ok := flagged[name]; ok {
		g.key = known.key
		if known.parse != nil {
			value, err := known.parse(text)
			if err == nil {
				err = g.value.Encode(value)
			}
			if err != nil {
				k.faults = append(k.faults, g.fault(err.Error()))
				return
			}
		}
	}
	k.tell(g)
}

// pairs reads a=1,b=2, whatever stands between a key and its value.
func pairs(sign string) func(text string) (any, error) {
	return func(text string) (any, error) {
		found := map[string]string{}
		for part := range strings.SplitSeq(text, ",") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			key, value, ok := strings.Cut(part, sign)
			if !ok || strings.TrimSpace(key) == "" {
				return nil, fmt.Errorf("%q is not KEY%sVALUE", part, sign)
			}
			found[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
		return found, nil
	}
}

// taints reads key=value:Effect,key:Effect.
func taints(text string) (any, error) {
	found := []config.Taint{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		pair, effect, ok := strings.Cut(part, ":")
		key, value, _ := strings.Cut(pair, "=")
		if !ok || key == "" || effect == "" {
			return nil, fmt.Errorf("%q is not KEY=VALUE:EFFECT", part)
		}
		found = append(found, config.Taint{Key: key, Value: value, Effect: effect})
	}
	return found, nil
}
