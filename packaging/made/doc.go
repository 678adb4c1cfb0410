// Package made makes what hostler's packages hold and nobody writes manually: man pages and
// completions, the packages' changelog, and the bill of materials beside them. All of it
// comes from the program and its configuration, with each build, so that none can be out of
// date. It refuses to be part of the program.
package made
