// Package naming derives the names of objects that controllers create.
//
// Derived names prevent duplicates from a stale cache: the second create fails with
// AlreadyExists. A name that is too long, or taken by another owner, gets a hash.
package naming

import (
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/util/rand"
)

// MaxLabel bounds label values, and names that are used as label values.
const MaxLabel = 63

// MaxName bounds object names.
const MaxName = 253

// ChildName joins the parts with "-". A result longer than limit is cut and ends in a hash
// of the whole.
func ChildName(limit int, parts ...string) string {
	full := strings.Join(parts, "-")
	if len(full) <= limit {
		return full
	}
	return appendHash(limit, full, strings.Join(parts, "\x00"))
}

// UniqueChildName returns the name for a child whose ChildName is taken by another owner. Its
// hash includes the owner's UID.
func UniqueChildName(limit int, ownerUID string, parts ...string) string {
	return appendHash(limit, strings.Join(parts, "-"), ownerUID+"\x00"+strings.Join(parts, "\x00"))
}

// LabelValue returns the value of a label that names an object, cut if it is too long.
func LabelValue(name string) string { return ChildName(MaxLabel, name) }

// appendHash returns full, cut to limit, with a hash of what. The hash has a fixed length
// and an alphabet that cannot spell words.
func appendHash(limit int, full, what string) string {
	h := fnv.New64a()
	h.Write([]byte(what))
	sum := rand.SafeEncodeString(encodeBase36(h.Sum64()))
	cut := min(len(full), limit-len(sum)-1)
	return strings.TrimRight(full[:cut], "-.") + "-" + sum
}

// encodeBase36 returns v in ten digits of base 36.
func encodeBase36(v uint64) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	var b [10]byte
	for i := range b {
		b[i] = digits[v%36]
		v /= 36
	}
	return string(b[:])
}
