package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// What an earlier process made of labels that are gone with their runtime stays so.
func TestPodsOfARuntimeThatIsGoneKeepTheirPhases(t *testing.T) {
	record := []journal.PodRecord{
		{Runtime: "k3s", Sandbox: true, ID: "1", UID: "uid", Namespace: "shop", Name: "web", Grace: metav1.Duration{Duration: 7 * time.Second}},
		{Runtime: "k3s", Sandbox: true, ID: "2", Namespace: "shop", Name: "db", Priority: plan.CriticalPriority},
		{Runtime: "docker", ID: "3", Name: "gone"},
		{Runtime: "podman", ID: "5", Name: "lone"}, // whose runtime lists none either, and is not stood in for
	}
	pods := remembered([]runtime.Pod{{Runtime: "docker", ID: "4"}}, record)
	for i := range pods { // as they are found
		pods[i].Containers = []runtime.Container{{Runtime: pods[i].Runtime, ID: "c" + pods[i].ID, Name: "main", State: runtime.Running}}
	}
	var got []string
	for _, phase := range plan.New(plan.Defaults(), pods, plan.Rules{}, 0).Phases {
		for _, p := range phase.Pods {
			got = append(got, fmt.Sprint(phase.Name, " ", p.Namespace, "/", p.Name, " ", p.Grace.Duration))
		}
	}
	if got, want := strings.Join(got, ", "), "regular shop/web 7s, critical shop/db 10s"; got != want {
		t.Errorf("planned %s, want %s", got, want)
	}
}
