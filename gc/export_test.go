package gc

import "hostler.io/hostler/runtime"

// MatchUnchecked matches a pattern that ParsePattern may reject.
func MatchUnchecked(text string, img runtime.Image) bool { return compile(text).Match(img) }
