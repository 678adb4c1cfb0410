package controlplane

// MostValues bounds the values in what is decoded at once, such as a page of a list: an empty object
// takes two bytes in JSON and, as a condition, 112 in memory. A Node has some 1,000.
const MostValues = 1 << 18

// CountValues counts the values in a text of JSON, except the first of each object and array, and of
// these the elements of arrays that are directly in the outermost object, as in a list.
func CountValues(text []byte) (values, items int) {
	depth, list := 0, false
	quoted, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '{', c == '[':
			if depth++; depth == 2 {
				list = c == '['
			}
		case c == '}', c == ']':
			depth--
		case c == ',':
			values++
			if depth == 2 && list {
				items++
			}
		}
	}
	return values, items
}
