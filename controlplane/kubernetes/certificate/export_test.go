package certificate

import "time"

// RenewAt returns when the certificate in use is renewed.
func (k *Keeper) RenewAt() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.renewAt
}
