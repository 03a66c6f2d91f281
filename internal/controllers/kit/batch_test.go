package kit

import (
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMemorySize(t *testing.T) {
	container := int(unsafe.Sizeof(corev1.Container{}))
	for _, c := range []struct {
		name        string
		of          any
		least, most int
	}{
		{"nothing", nil, 0, 0},
		{"a text", &struct{ S string }{strings.Repeat("x", 1000)}, 1000, 1100},
		{"empty containers", &corev1.PodSpec{Containers: make([]corev1.Container, 100)}, 100 * container, 100*container + 2000},
		{"a map", map[string]string{"key": "value"}, 40, 100},
		{"a time", &metav1.ObjectMeta{CreationTimestamp: metav1.Now()}, 100, 1000},
		{"bytes", []byte("12345"), 5, 5},
	} {
		if got := MemorySize(c.of); got < c.least || got > c.most {
			t.Errorf("%s: %d bytes, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

func TestBatch_BoundsNumberAndMemory(t *testing.T) {
	count := func(b Batch, object any) int {
		n := 0
		for ; !b.IsFull(); n++ {
			b.Add(object)
		}
		return n
	}
	if n := count(NewBatch(500), &corev1.Pod{}); n != 500 {
		t.Errorf("%d small objects", n)
	}
	if n := count(NewBatch(500), strings.Repeat("x", MaxBatchBytes/4)); n != 4 {
		t.Errorf("%d objects of a quarter of the memory", n)
	}
	if n := count(NewBatch(500), strings.Repeat("x", 2*MaxBatchBytes)); n != 1 {
		t.Errorf("%d objects that are larger than the memory", n)
	}
}
