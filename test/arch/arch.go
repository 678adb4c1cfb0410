// Package arch tests which packages may import which. The rules are the map in ARCHITECTURE.md, in
// a form that cannot become outdated.
package arch
