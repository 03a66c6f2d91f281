package placement

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// same: equal as text or as numbers, so that 8Gi is 8192Mi.
func same(a, b string) bool {
	if a == b {
		return true
	}
	x, y := number(a), number(b)
	return x != nil && y != nil && x.Cmp(y) == 0
}

// order compares numbers as numbers, else versions as versions, else text.
func order(a, b string) int {
	if x, y := number(a), number(b); x != nil && y != nil {
		return x.Cmp(y)
	}
	x, ok := readVersion(a)
	if y, also := readVersion(b); ok && also {
		return x.compare(y)
	}
	return strings.Compare(a, b)
}

// scales of quantities, as Kubernetes writes them.
var scales = map[string]*big.Rat{
	"": power(10, 0), "n": power(10, -9), "u": power(10, -6), "m": power(10, -3),
	"k": power(10, 3), "M": power(10, 6), "G": power(10, 9), "T": power(10, 12), "P": power(10, 15), "E": power(10, 18),
	"Ki": power(2, 10), "Mi": power(2, 20), "Gi": power(2, 30), "Ti": power(2, 40), "Pi": power(2, 50), "Ei": power(2, 60),
}

func power(base, n int64) *big.Rat {
	p := new(big.Int).Exp(big.NewInt(base), big.NewInt(max(n, -n)), nil)
	if n < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), p)
	}
	return new(big.Rat).SetInt(p)
}

// maxNumber bounds the text of a number. A robot's labels are anybody's, and
// 1e999999999 written out would fill the memory.
const maxNumber = 32

// number reads a decimal number or a quantity. Nil: it is none.
func number(s string) *big.Rat {
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

// version is numbers, and the name of a pre-release if it is one.
type version struct {
	numbers []uint64
	pre     string
}

// preReleases begin the names of what comes before a release. Other names
// after the numbers, such as amd64 or generic, say nothing of age.
var preReleases = []string{"alpha", "beta", "rc", "pre", "dev", "snapshot"}

// readVersion understands 1.2.3, v1.2, 1.2.3-rc.1 and what kernels say of
// themselves: of 6.1.0-18-amd64 the 18 counts after the others.
func readVersion(s string) (v version, ok bool) {
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

func (v version) compare(o version) int {
	for i := range max(len(v.numbers), len(o.numbers)) {
		if c := cmp.Compare(v.at(i), o.at(i)); c != 0 {
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
	return slices.CompareFunc(strings.Split(v.pre, "."), strings.Split(o.pre, "."), order)
}

// at is the number at a place; 1.2 is 1.2.0.
func (v version) at(i int) uint64 {
	if i < len(v.numbers) {
		return v.numbers[i]
	}
	return 0
}

// versionRange is bounds that all hold.
type versionRange []bound

// bound is one of them.
type bound struct {
	operand string
	version version
}

// bounds by their operands, the longer before those that begin like them.
var bounds = []string{">=", "<=", "!=", "~>", ">", "<", "="}

// readRange understands bounds with commas, such as ">= 1.2, < 2". A version
// alone is itself.
func readRange(s string) (versionRange, error) {
	var out versionRange
	for _, item := range items(s) {
		b := bound{operand: "="}
		for _, operand := range bounds {
			if rest, ok := strings.CutPrefix(item, operand); ok {
				b.operand, item = operand, strings.TrimSpace(rest)
				break
			}
		}
		var ok bool
		if b.version, ok = readVersion(item); !ok {
			return nil, fmt.Errorf("%q is not a version with = != > >= < <= or ~> before it", item)
		}
		out = append(out, b)
	}
	return out, nil
}

// contains is false for what is no version.
func (r versionRange) contains(s string) bool {
	v, ok := readVersion(s)
	if !ok {
		return false
	}
	for _, b := range r {
		if !b.holds(v) {
			return false
		}
	}
	return true
}

func (b bound) holds(v version) bool {
	c := v.compare(b.version)
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
	case "~>": // at least this, and the same but for the last number
		most := version{numbers: slices.Clone(b.version.numbers[:max(len(b.version.numbers)-1, 1)])}
		most.numbers[len(most.numbers)-1]++
		return c >= 0 && v.compare(most) < 0
	}
	return c == 0
}
