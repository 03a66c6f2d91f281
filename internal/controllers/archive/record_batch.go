package archive

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/archive"
)

// batchDelay is how long a batch waits for more objects. A transaction costs as much as the record of
// a task, so tasks that end at about the same time share one.
const batchDelay = 100 * time.Millisecond

// batchRecorder records objects of several callers in one transaction.
type batchRecorder struct {
	// write records objects in one transaction.
	write func(ctx context.Context, objects []archive.Object) error

	mu   sync.Mutex
	next *pendingBatch // that still takes objects; nil: none
}

// pendingBatch is a batch and its result.
type pendingBatch struct {
	objects []archive.Object
	isFull  chan struct{} // closed when it has recordBatch objects
	isDone  chan struct{} // closed after the transaction
	err     error
}

// recordObject returns after the transaction that has the object. If that fails, the object is recorded
// alone, because another one may be the cause.
func (r *batchRecorder) recordObject(ctx context.Context, o archive.Object) error {
	b := r.join(o)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-b.isDone:
	}
	if b.err == nil || len(b.objects) == 1 {
		return b.err
	}
	return r.write(ctx, []archive.Object{o})
}

// join adds an object to the next batch, which is created if there is none.
func (r *batchRecorder) join(o archive.Object) *pendingBatch {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.next
	if b == nil {
		b = &pendingBatch{isFull: make(chan struct{}), isDone: make(chan struct{})}
		r.next = b
		go r.writeLater(b)
	}
	b.objects = append(b.objects, o)
	if len(b.objects) == recordBatch {
		r.next = nil
		close(b.isFull)
	}
	return b
}

// writeLater writes a batch when it is full or has waited for batchDelay. It uses no caller's context,
// since a caller that gives up must not fail the others.
func (r *batchRecorder) writeLater(b *pendingBatch) {
	select {
	case <-b.isFull:
	case <-time.After(batchDelay):
	}
	r.mu.Lock()
	if r.next == b {
		r.next = nil
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	b.err = r.write(ctx, slices.Clone(b.objects))
	close(b.isDone)
}
