package placement

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// equalValues reports whether two values are equal as text or as numbers: 8Gi equals 8192Mi.
func equalValues(a, b string) bool {
	if a == b {
		return true
	}
	x, y := parseNumber(a), parseNumber(b)
	return x != nil && y != nil && x.Cmp(y) == 0
}

// compareValues compares numbers as numbers, else versions as versions, else text.
func compareValues(a, b string) int {
	if x, y := parseNumber(a), parseNumber(b); x != nil && y != nil {
		return x.Cmp(y)
	}
	x, ok := parseVersion(a)
	if y, also := parseVersion(b); ok && also {
		return x.compareTo(y)
	}
	return strings.Compare(a, b)
}

// scales of quantities, as Kubernetes writes them.
var scales = map[string]*big.Rat{
	"": newPower(10, 0), "n": newPower(10, -9), "u": newPower(10, -6), "m": newPower(10, -3),
	"k": newPower(10, 3), "M": newPower(10, 6), "G": newPower(10, 9), "T": newPower(10, 12), "P": newPower(10, 15), "E": newPower(10, 18),
	"Ki": newPower(2, 10), "Mi": newPower(2, 20), "Gi": newPower(2, 30), "Ti": newPower(2, 40), "Pi": newPower(2, 50), "Ei": newPower(2, 60),
}

func newPower(base, n int64) *big.Rat {
	p := new(big.Int).Exp(big.NewInt(base), big.NewInt(max(n, -n)), nil)
	if n < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), p)
	}
	return new(big.Rat).SetInt(p)
}

// maxNumber bounds the length of a number. Robots choose their labels, and a value such as
// 1e999999999 would use all memory.
const maxNumber = 32

// parseNumber parses a decimal number or a quantity. It returns nil for other text.
func parseNumber(s string) *big.Rat {
	end := strings.LastIndexAny(s, "0123456789") + 1
	if end == 0 || len(s) > maxNumber {
		return nil
	}
	scale, ok := scales[s[end:]]
	if !ok || strings.Trim(s[:end], "+-.0123456789") != "" {
		return nil
	}
	n, ok := new(big.Rat).SetString(s[:end])
	if !ok {
		return nil
	}
	return n.Mul(n, scale)
}

// version is a list of numbers, and the name of a pre-release if there is one.
type version struct {
	numbers []uint64
	pre     string
}

// preReleases are prefixes of the names of pre-releases. Other names after the numbers, such as
// amd64 or generic, are ignored.
var preReleases = []string{"alpha", "beta", "rc", "pre", "dev", "snapshot"}

// parseVersion parses 1.2.3, v1.2, 1.2.3-rc.1 and versions of kernels: in 6.1.0-18-amd64 the 18
// is the fourth number.
func parseVersion(s string) (v version, ok bool) {
	if len(s) > 128 {
		return v, false
	}
	rest, _, _ := strings.Cut(strings.TrimPrefix(s, "v"), "+")
	for rest != "" {
		end := strings.IndexAny(rest, ".-")
		part, next := rest, ""
		if end >= 0 {
			part, next = rest[:end], rest[end+1:]
		}
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			break
		}
		v.numbers, rest = append(v.numbers, n), next
	}
	name := strings.ToLower(rest)
	if slices.ContainsFunc(preReleases, func(p string) bool { return strings.HasPrefix(name, p) }) {
		v.pre = name
	}
	return v, len(v.numbers) > 0
}

func (v version) compareTo(o version) int {
	for i := range max(len(v.numbers), len(o.numbers)) {
		if c := cmp.Compare(v.numberAt(i), o.numberAt(i)); c != 0 {
			return c
		}
	}
	switch {
	case v.pre == o.pre:
		return 0
	case v.pre == "":
		return 1
	case o.pre == "":
		return -1
	}
	return slices.CompareFunc(strings.Split(v.pre, "."), strings.Split(o.pre, "."), compareValues)
}

// numberAt returns a number of the version; 1.2 equals 1.2.0.
func (v version) numberAt(i int) uint64 {
	if i < len(v.numbers) {
		return v.numbers[i]
	}
	return 0
}

// versionRange is a list of bounds that must all hold.
type versionRange []bound

// bound compares a version with another one.
type bound struct {
	operand string
	version version
}

// boundOperands lists longer operands before their prefixes.
var boundOperands = []string{">=", "<=", "!=", "~>", ">", "<", "="}

// parseRange parses bounds that are separated by commas, such as ">= 1.2, < 2". The operand of a
// version alone is "=".
func parseRange(s string) (versionRange, error) {
	var out versionRange
	for _, item := range splitList(s) {
		b := bound{operand: "="}
		for _, operand := range boundOperands {
			if rest, ok := strings.CutPrefix(item, operand); ok {
				b.operand, item = operand, strings.TrimSpace(rest)
				break
			}
		}
		var ok bool
		if b.version, ok = parseVersion(item); !ok {
			return nil, fmt.Errorf("%q is not a version with one of the operators = != > >= < <= ~> before it", item)
		}
		out = append(out, b)
	}
	return out, nil
}

// containsVersion reports whether the text is a version within all bounds.
func (r versionRange) containsVersion(s string) bool {
	v, ok := parseVersion(s)
	if !ok {
		return false
	}
	for _, b := range r {
		if !b.allowsVersion(v) {
			return false
		}
	}
	return true
}

func (b bound) allowsVersion(v version) bool {
	c := v.compareTo(b.version)
	switch b.operand {
	case "!=":
		return c != 0
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case "~>": // at least this version, with the same numbers except the last one
		most := version{numbers: slices.Clone(b.version.numbers[:max(len(b.version.numbers)-1, 1)])}
		most.numbers[len(most.numbers)-1]++
		return c >= 0 && v.compareTo(most) < 0
	}
	return c == 0
}
