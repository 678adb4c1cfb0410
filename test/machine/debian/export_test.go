package debian

// SourcesFor is sourcesFor.
func SourcesFor(codename, apt string) (map[string]string, error) { return sourcesFor(codename, apt) }
