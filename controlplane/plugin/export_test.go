package plugin

import (
	"context"

	"google.golang.org/grpc/connectivity"
)

// What the tests compare with.
const MaxValueBytes = maxValueBytes

// WaitLost waits until the connection is known to be lost.
func (s *Store) WaitLost(ctx context.Context) { s.conn.WaitForStateChange(ctx, connectivity.Ready) }
