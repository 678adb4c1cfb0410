package controlplane

import (
	"bytes"
	"errors"

	"sigs.k8s.io/json"
)

// A Quantity such as 1234567890123456789e300000 takes half a minute of CPU to encode. One with a few more zeros takes
// minutes to decode.
const (
	longestMantissa = 64 // digits
	longestExponent = 2  // digits
)

// wordBytes are those of numbers, and of words that may begin with a number.
const wordBytes = "0123456789+-._/\\abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

var isWord = func() (is [256]bool) {
	for _, b := range []byte(wordBytes) {
		is[b] = true
	}
	return is
}()

// MostDigits is the limit of a Quantity, for messages.
const MostDigits = "64 digits in a quantity, or 2 in its exponent"

// CheckQuantities returns an error if JSON text has a Quantity that takes long to decode into a new object of a type.
// Other values may look like one, such as a short hash in a label: so the type decides, by decoding the text without
// them.
func CheckQuantities(text []byte, into any) error {
	masked := MaskHuge(text)
	if masked == nil || json.UnmarshalCaseSensitivePreserveInts(masked, into) == nil { // masked names may be the same
		return nil
	}
	return errors.New("it has more than " + MostDigits + ", or is not valid")
}

// MaskHuge returns JSON text with ? instead of each word that begins with a huge number; nil if there is none.
func MaskHuge(text []byte) (masked []byte) {
	copied, inWord, skip := 0, false, false
	for i, b := range text {
		if isWord[b] == inWord {
			continue
		}
		inWord = !inWord
		switch {
		case inWord && b <= '9' && IsHuge(text[i:]):
			masked = append(append(masked, text[copied:i]...), '?')
			skip = true
		case skip:
			copied, skip = len(bytes.TrimRight(text[:i], `\`)), false // a backslash escapes what follows
		}
	}
	if masked == nil || skip {
		return masked
	}
	return append(masked, text[copied:]...)
}

// IsHuge reports whether text begins with a number that has a long mantissa or a long exponent.
func IsHuge(text []byte) bool {
	rest := skipSign(text)
	mantissa, rest := digits(rest, '.')
	if mantissa > longestMantissa || len(rest) == 0 || rest[0]|0x20 != 'e' {
		return mantissa > longestMantissa
	}
	exponent, _ := digits(skipSign(rest[1:]), '0')
	return exponent > longestExponent
}

func skipSign(text []byte) []byte {
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		return text[1:]
	}
	return text
}

// digits returns how many digits, and bytes that are also, text begins with, and what follows them.
func digits(text []byte, also byte) (n int, rest []byte) {
	for n < len(text) && (text[n] >= '0' && text[n] <= '9' || text[n] == also) {
		n++
	}
	return n, text[n:]
}
