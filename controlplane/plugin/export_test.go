package plugin

import (
	"context"

	"google.golang.org/grpc/connectivity"
)

// Constants for tests.
const MaxValueBytes = maxValueBytes

// WaitLost waits until the client has noticed that the connection is lost.
func (s *Store) WaitLost(ctx context.Context) { s.conn.WaitForStateChange(ctx, connectivity.Ready) }
