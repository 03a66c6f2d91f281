package raycluster

import (
	"hash/fnv"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
)

// suffixLength is the length of the suffix that the API server generates, which KubeRay's Pods
// have.
const suffixLength = 5

// nameSuffix returns a suffix derived from the identity of a Pod or replica. A repeated create uses
// the same name and gets AlreadyExists, even if the cache is stale or the controller has restarted.
//
// generation is that of the group: a replacement needs a new name, because Ray identifies nodes by
// it. salt is increased to avoid names that are taken.
func nameSuffix(cluster types.UID, s slot, host, generation, salt int) string {
	h := fnv.New64a()
	for _, part := range []string{string(cluster), s.group, strconv.Itoa(s.index), strconv.Itoa(host), strconv.Itoa(generation), strconv.Itoa(salt)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	sum := mixBits(h.Sum64())
	var b [suffixLength]byte
	for i := range b {
		b[i] = digits[sum%36]
		sum /= 36
	}
	return rand.SafeEncodeString(string(b[:]))
}

// mixBits distributes hashes of inputs that differ in one digit (the finalizer of MurmurHash3).
func mixBits(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
