package hostnode

import "testing"

func TestExpandVariables(t *testing.T) {
	lookup := lookupIn(map[string]string{"A": "1", "EMPTY": "", "REF": "$(A)", "a b": "blank"})
	for in, want := range map[string]string{
		"":                "",
		"plain":           "plain",
		"$(A)":            "1",
		"x$(A)y$(A)":      "x1y1",
		"$(EMPTY)|":       "|",
		"$(NONE)":         "$(NONE)",
		"$$(A)":           "$(A)",
		"$$$(A)":          "$1",
		"$$":              "$",
		"$":               "$",
		"$A":              "$A",
		"$(A":             "$(A",
		"$(":              "$(",
		"$()":             "$()",
		"$(REF)":          "$(A)", // values are not expanded again
		"$(a b)":          "blank",
		"price: 5$ $(A)$": "price: 5$ 1$",
	} {
		if got := expandVariables(in, lookup); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
