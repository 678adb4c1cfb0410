package podman

// WatchExits has r watch another folder than Exits, and wait for nothing to settle.
func (r *Runtime) WatchExits(folder string) { r.exits, r.changes.settling = folder, 0 }
