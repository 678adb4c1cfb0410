package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// passed returns the result for a response that is read in small parts.
func passed(text string) (string, error) {
	read, err := io.ReadAll(&elements{ReadCloser: io.NopCloser(iotest.HalfReader(strings.NewReader(text)))})
	return string(read), err
}

func TestSmallAnswersPassUnchanged(t *testing.T) {
	for _, text := range []string{
		``, `null`, `"a \" b"`, `[]`, ` [ ] `, `{}`, `{"a":[1,2,{"b":"],}"}]}`, `[{"Id":"a","Labels":{"x":"\\\",]"}} , {"Id":"b"}]` + "\n",
		`{"e":1}` + "\n" + `{"e":2}` + "\n", `["a",1,null,[[]],{}]`, `[{"Id":"c`, `{"Id":`, `[1,2`,
	} {
		got, err := passed(text)
		if complete := json.Valid([]byte(text)) || strings.Contains(text, `"e"`); complete && got != text || !strings.HasPrefix(text, got) || err != nil {
			t.Errorf("of %s is passed on %s, %v", text, got, err)
		}
	}
}

func TestALargeElementIsCut(t *testing.T) {
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"a%d":"b",`, i)
		}
		return b.String()
	}
	for name, labels := range map[string]string{
		"a long value":         `"long":"` + strings.Repeat("x", 20<<20) + `",`,
		"a long value escaped": `"long":"` + strings.Repeat(`\"`, 2<<20) + `",`,
		"a long value of \\u":  `"long":"` + strings.Repeat(`\ud83d\ude00`, 1<<18) + `",`,
		"a long key":           `"` + strings.Repeat("k", 2<<20) + `":"v",`,
		"long values":          strings.Repeat(`"long":"`+strings.Repeat("x", 60<<10)+`",`, 400),
		"many small labels":    many(100_000),
	} {
		t.Run(name, func(t *testing.T) {
			element := `{"Id":"c","Created":12345678901234567,"Labels":{"hostler.io/keep":"true",` + labels + `"com.docker.compose.project":"shop","z":"1"},"State":"running"}`
			var list []struct {
				ID      string
				Created int64
				Labels  map[string]string
				State   string
			}
			text, err := passed("[" + element + "," + element + `,{"Id":"d"}]`)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 3 {
				t.Fatalf("passed on is a list of %d, %v, want 3", len(list), err)
			}
			for _, c := range list[:2] {
				if c.ID != "c" || c.Created != 12345678901234567 || c.State != "running" || c.Labels["hostler.io/keep"] != "true" {
					t.Errorf("passed on is %q of %d, %q, kept %q", c.ID, c.Created, c.State, c.Labels["hostler.io/keep"])
				}
				if name != "long values" && c.Labels["com.docker.compose.project"] != "shop" {
					t.Errorf("the label of its project is lost")
				}
			}
			if len(text) > 4*maxUncleanedBytes {
				t.Errorf("passed on are %d bytes", len(text))
			}
		})
	}
}

// The author of an image chooses how many ports, volumes and platforms it has. A container must not
// end a list by them, and its labels come after its ports.
func TestElementsWithManyMembersDoNotEndAList(t *testing.T) {
	const count = 3
	exposed := make([]string, 60_000)
	for i := range exposed {
		exposed[i] = fmt.Sprintf(`"%d":["tcp","udp","sctp"]`, i)
	}
	for name, member := range map[string]string{
		"ports":         `"Ports":[` + strings.Repeat(`{"IP":"0.0.0.0","PrivatePort":65535,"PublicPort":65535,"Type":"sctp"},`, 196_605) + `{}]`,
		"exposed ports": `"ExposedPorts":{` + strings.Join(exposed, ",") + `}`,
		"volumes":       `"Mounts":[` + strings.Repeat(`{"Type":"volume","Name":"`+strings.Repeat("0", 64)+`"},`, 50_000) + `{"Type":"image","Name":"mounted"}]`,
		"platforms":     `"Manifests":[` + strings.Repeat(`{"ID":"`+strings.Repeat("0", 64)+`","ImageData":{"Identity":{}}},`, 50_000) + `{}]`,
	} {
		t.Run(name, func(t *testing.T) {
			element := `{"Id":"c",` + member + `,"RepoTags":["a:` + strings.Repeat(`1","a:`, 10_000) + `2"],"Labels":{"a":"b","hostler.io/keep":"true"},"State":"running"}`
			text, err := passed("[" + strings.Repeat(element+",", count-1) + element + "]")
			if err != nil {
				t.Fatal(err)
			}
			var list []struct {
				State    string
				Labels   map[string]string
				RepoTags []string
				Mounts   []struct{ Type, Name string }
			}
			if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != count {
				t.Fatalf("passed on is a list of %d, %v, want %d", len(list), err, count)
			}
			for _, c := range list {
				if n := len(c.Mounts); name == "volumes" && (n < 100 || c.Mounts[n-1].Name != "mounted") {
					t.Errorf("passed on are %d mounts, want the one of an image among them", n)
				}
				if c.State != "running" || c.Labels["hostler.io/keep"] != "true" || len(c.RepoTags) != 10_001 {
					t.Errorf("passed on is %q, labels %v, %d tags, want all that hostler reads", c.State, c.Labels, len(c.RepoTags))
				}
			}
			if len(text) > len(list)*4*maxMemberBytes {
				t.Errorf("passed on are %d bytes", len(text))
			}
		})
	}
}

// TestManyMountsOfPodmanDoNotEndAList has the mounts of a list of Podman, which are texts.
func TestManyMountsOfPodmanDoNotEndAList(t *testing.T) {
	text, err := passed(`[{"Id":"c","Mounts":["` + strings.Repeat("<", 2*maxMemberBytes) + `",` + strings.Repeat(`"/a",`, 200_000) + `"/b"],"State":"running"}]`)
	if err != nil || len(text) > 4*maxMemberBytes || !strings.Contains(text, `"State":"running"`) {
		t.Errorf("passed on are %d bytes, %v, want fewer mounts", len(text), err)
	}
}

// TestManyMountsOfAnInspectedContainerAreCut has more than fit into an answer.
func TestManyMountsOfAnInspectedContainerAreCut(t *testing.T) {
	mount := `{"Type":"volume","Name":"` + strings.Repeat("0", 64) + `","Source":"` + strings.Repeat("a", 200) + `"}`
	text, err := passed(`{"Id":"c","Mounts":[` + strings.Repeat(mount+",", 80_000) + mount + `],"Config":{"StopSignal":"SIGINT"}}`)
	if err != nil || len(text) > 2*maxWantedBytes || !strings.Contains(text, `"StopSignal":"SIGINT"`) {
		t.Errorf("passed on are %d bytes, %v, want fewer mounts", len(text), err)
	}
}

// TestMembersOfAnInspectedObjectHideNoOthers has an image whose variables are as large as its author could make them.
func TestMembersOfAnInspectedObjectHideNoOthers(t *testing.T) {
	variable := `"A=` + strings.Repeat(`\u0001`, 128<<10) + `"`
	text, err := passed(`{"Id":"a","Config":{"Env":[` + strings.Repeat(variable+",", 5) + variable + `],"Labels":{"a":"b"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	var image struct {
		Config struct {
			Env    []string
			Labels map[string]string
		}
	}
	if err := json.Unmarshal([]byte(text), &image); err != nil || image.Config.Labels["a"] != "b" || len(image.Config.Env) == 6 {
		t.Errorf("passed on are %d variables and labels %v, %v, want fewer variables, and all labels", len(image.Config.Env), image.Config.Labels, err)
	}
}

func TestAnElementThatCannotBeCutIsTooLarge(t *testing.T) {
	for _, filling := range []string{"[", "1"} {
		if _, err := passed(`{"a":` + strings.Repeat(filling, MaxAnswerBytes)); !errors.Is(err, errTooLarge) {
			t.Errorf("of many %s is passed on %v, want %v", filling, err, errTooLarge)
		}
	}
}

// A small response is passed on unchanged, whatever it contains.
func FuzzElements(f *testing.F) {
	f.Add([]byte(`[{"Id":"a","Labels":{"x":"\\\",]"}} , {"Id":"b"}]`))
	f.Add([]byte(`{"e":"é","f":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := passed(string(text))
		if valid := json.Valid(text); err != nil || valid && got != string(text) || !strings.HasPrefix(string(text), got) {
			t.Errorf("of %s is passed on %s, %v", text, got, err)
		}
	})
}
