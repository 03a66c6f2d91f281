package archive

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestUIDOfNamespace(t *testing.T) {
	at := func(second int) metav1.Time { return metav1.NewTime(time.Unix(int64(second), 0)) }
	deletedAt := func(second int) *metav1.Time { t := at(second); return &t }
	for _, c := range []struct {
		name    string
		created int // the namespace, in seconds
		deleted *metav1.Time
		object  int
		want    string
		fails   bool
	}{
		{"an object of the namespace", 10, nil, 20, "n", false},
		{"one of the same second", 10, nil, 10, "n", false},
		{"one of an earlier namespace, whose deletion is seen late", 10, nil, 9, "", false},
		{"one of a namespace that is being deleted", 10, deletedAt(30), 20, "n", false},
		{"one that was created later than the deletion, so in the next namespace", 10, deletedAt(30), 31, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNamespace()
			n.UID, n.CreationTimestamp, n.DeletionTimestamp = "n", at(c.created), c.deleted
			got, err := uidOfNamespace(n, &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(c.object)}})
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}
