package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Quantity is a Kubernetes quantity: 500m, 2, 128Mi, 1e3.
type Quantity string

// UnmarshalJSON accepts a string or a number.
func (q *Quantity) UnmarshalJSON(b []byte) error {
	var n json.Number
	if json.Unmarshal(b, &n) == nil {
		*q = Quantity(n)
		return nil
	}
	return json.Unmarshal(b, (*string)(q))
}

// factors are the values of the suffixes of a Quantity.
var factors = map[string]float64{
	"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
}

// RoundUpTo returns the quantity times parts, rounded up, at most math.MaxInt64. An empty
// quantity is zero. It returns an error for text that is not a quantity, and for a negative one.
func (q Quantity) RoundUpTo(parts int64) (int64, error) {
	if q == "" {
		return 0, nil
	}
	number, factor := q.splitSuffix()
	n, ok := parseDecimal(number)
	if !ok {
		return 0, fmt.Errorf("%.40q is not an amount such as 500m, 2 or 128Mi", string(q))
	}
	// Not in binary, which has no 32.2: a thousand of it would be 32201.
	n.Mul(n, factor).Mul(n, new(big.Rat).SetInt64(parts))
	whole, rest := new(big.Int).QuoRem(n.Num(), n.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if !whole.IsInt64() {
		return math.MaxInt64, nil
	}
	return whole.Int64(), nil
}

// splitSuffix splits off a known suffix. An unknown one stays, so that parsing the number fails.
func (q Quantity) splitSuffix() (number string, factor *big.Rat) {
	s := string(q)
	for _, n := range []int{2, 1} {
		if len(s) <= n {
			continue
		}
		if f, known := factors[s[len(s)-n:]]; known {
			exact, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
			return s[:len(s)-n], exact
		}
	}
	return s, big.NewRat(1, 1)
}

// The bounds of a number that is worth computing.
const (
	maxDigits   = 64
	maxExponent = 30
)

// parseDecimal parses digits with an optional point and exponent of ten.
func parseDecimal(s string) (*big.Rat, bool) {
	digits, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	if e, err := strconv.Atoi(exponent); exponent != "" && (err != nil || e < -maxExponent || e > maxExponent) {
		return nil, false
	}
	if len(digits) > maxDigits || strings.Trim(digits, "0123456789.") != "" {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}
