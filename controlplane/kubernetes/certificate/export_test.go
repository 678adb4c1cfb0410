package certificate

import "time"

// RenewAt is when the certificate in use is due for another.
func (k *Keeper) RenewAt() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.renewAt
}
