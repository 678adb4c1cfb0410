// Package gc decides which images and dead containers are removed. It selects unused ones, least
// recently used first, if their filesystem is too full or if they are too old.
//
// It owns the policies and their facts, and has no side effects. [Plan] takes facts and a time, and
// returns the decision for each object with the reason. Package collect executes plans and measures
// the freed space. Package lastused records when an image was last used. A plan never removes what
// a container uses. Sizes are estimates, used only for the order.
package gc
