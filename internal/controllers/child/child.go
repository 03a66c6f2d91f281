// Package child derives the names of objects that controllers create.
//
// Derived names mean that a stale cache cannot make twins: the second create
// meets the first. A name that is too long, or that somebody else holds, gets
// a hash instead of being refused.
package child

import (
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/util/rand"
)

// MaxLabel bounds the values of labels, and the names that stand in them.
const MaxLabel = 63

// MaxName bounds the names of objects.
const MaxName = 253

// Name joins the parts with "-". A result longer than limit is shortened and
// ends in a hash of all of it.
func Name(limit int, parts ...string) string {
	full := strings.Join(parts, "-")
	if len(full) <= limit {
		return full
	}
	return hashed(limit, full, strings.Join(parts, "\x00"))
}

// Other is the name for a child whose Name somebody else holds: the owner's
// UID makes it the owner's alone.
func Other(limit int, ownerUID string, parts ...string) string {
	return hashed(limit, strings.Join(parts, "-"), ownerUID+"\x00"+strings.Join(parts, "\x00"))
}

// Label is a value for a label that names an object: the name, shortened when
// labels may not be that long.
func Label(name string) string { return Name(MaxLabel, name) }

// hashed ends in a hash over what; the hash is in letters that cannot spell
// words and always has the same length.
func hashed(limit int, full, what string) string {
	h := fnv.New64a()
	h.Write([]byte(what))
	sum := rand.SafeEncodeString(fixed(h.Sum64()))
	cut := min(len(full), limit-len(sum)-1)
	return strings.TrimRight(full[:cut], "-.") + "-" + sum
}

// fixed writes v in ten digits of base 36.
func fixed(v uint64) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	var b [10]byte
	for i := range b {
		b[i] = digits[v%36]
		v /= 36
	}
	return string(b[:])
}
