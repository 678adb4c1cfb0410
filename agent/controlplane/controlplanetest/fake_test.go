package controlplanetest_test

import (
	"testing"

	"hostler.io/hostler/agent/controlplane/controlplanetest"
)

func TestTheFakeConforms(t *testing.T) {
	controlplanetest.Run(t, func(*testing.T) controlplanetest.Backend {
		fake := controlplanetest.NewFake(nil)
		return controlplanetest.Backend{Client: fake, Edit: fake.Edit, MaxEvents: controlplanetest.FakeMaxEvents}
	})
}

func TestAFakeThatKeepsNodesConforms(t *testing.T) {
	controlplanetest.Run(t, func(*testing.T) controlplanetest.Backend {
		fake := controlplanetest.NewFake(nil)
		fake.KeepNodes()
		return controlplanetest.Backend{Client: fake, Edit: fake.Edit, Keeps: true, MaxEvents: controlplanetest.FakeMaxEvents}
	})
}
