package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"k8s4r.io/k8s4r/internal/archive"
)

// transactions notes the names of the objects of each write.
type transactions struct {
	mu     sync.Mutex
	sizes  []int
	reject string // the object that fails its transaction
}

var errRejected = errors.New("rejected")

func (w *transactions) write(_ context.Context, objects []archive.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sizes = append(w.sizes, len(objects))
	if slices.ContainsFunc(objects, func(o archive.Object) bool { return o.Name == w.reject }) {
		return errRejected
	}
	return nil
}

// recordAll records n objects at the same time, and returns the names of those that failed.
func recordAll(r *batchRecorder, n int) (failed []string) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		wg.Go(func() {
			name := fmt.Sprint("task-", i)
			if err := r.recordObject(context.Background(), archive.Object{Name: name}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, name)
			}
		})
	}
	wg.Wait()
	return failed
}

func TestBatchRecorder_SharesATransaction(t *testing.T) {
	for n, want := range map[int][]int{1: {1}, 40: {40}, recordBatch + 3: {3, recordBatch}} {
		synctest.Test(t, func(t *testing.T) {
			w := &transactions{}
			r := &batchRecorder{write: w.write}
			failed := recordAll(r, n)
			if slices.Sort(w.sizes); len(failed) > 0 || !slices.Equal(w.sizes, want) {
				t.Errorf("%d objects: transactions of %v, want %v; failed: %v", n, w.sizes, want, failed)
			}
			if failed = recordAll(r, 1); len(failed) > 0 || len(w.sizes) != len(want)+1 {
				t.Errorf("after %d objects: transactions of %v; failed: %v", n, w.sizes, failed)
			}
		})
	}
}

func TestBatchRecorder_OneObjectFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &transactions{reject: "task-2"}
		failed := recordAll(&batchRecorder{write: w.write}, 5)
		if !slices.Equal(failed, []string{"task-2"}) || !slices.Equal(w.sizes, []int{5, 1, 1, 1, 1, 1}) {
			t.Errorf("failed: %v in transactions of %v", failed, w.sizes)
		}
	})
}

func TestBatchRecorder_ACallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &transactions{}
		r := &batchRecorder{write: w.write}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := r.recordObject(ctx, archive.Object{Name: "first"}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if failed := recordAll(r, 2); len(failed) > 0 || !slices.Equal(w.sizes, []int{3}) {
			t.Errorf("transactions of %v; failed: %v", w.sizes, failed)
		}
	})
}
