package raycluster

import (
	"hash/fnv"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
)

// suffixLength is that of the names that an API server generates, which KubeRay's Pods
// have.
const suffixLength = 5

// suffix of the name of a Pod, or of a replica, derived from what it is: the second
// create of a Pod meets the first, whoever makes it and whatever its cache shows.
//
// refilled is how often the place was filled anew, so that the Pod that replaces another
// has a name of its own: Ray knows its nodes by it. salt is for names that are taken.
func suffix(cluster types.UID, s slot, host, refilled, salt int) string {
	h := fnv.New64a()
	for _, part := range []string{string(cluster), s.group, strconv.Itoa(s.index), strconv.Itoa(host), strconv.Itoa(refilled), strconv.Itoa(salt)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	sum := mix(h.Sum64())
	var b [suffixLength]byte
	for i := range b {
		b[i] = digits[sum%36]
		sum /= 36
	}
	return rand.SafeEncodeString(string(b[:]))
}

// mix spreads the sum of parts that differ in one digit.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
