package objectstest_test

import (
	"testing"

	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/objectstest"
)

func TestTheStoreInMemoryKeepsEveryPromise(t *testing.T) {
	objectstest.Run(t, func(*testing.T) objects.Store { return objectstest.New() })
}
