package bridge

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// standing makes informers of a cluster that stands at a resource version, has
// one old Task and is quiet.
type standing struct{ version string }

func (s standing) GetInformer(ctx context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			at := metav1.ListMeta{ResourceVersion: s.version}
			if _, ok := object.(*robotv1.Robot); ok {
				return &robotv1.RobotList{ListMeta: at}, nil
			}
			old := bound("old", "r1")
			old.ResourceVersion = "7"
			return &robotv1.TaskList{ListMeta: at, Items: []robotv1.Task{*old}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	informer := toolscache.NewSharedIndexInformer(toolscache.ToListWatcherWithWatchListSemantics(lw, noWatchList{}), object, 0, toolscache.Indexers{})
	go informer.Run(ctx.Done())
	return informer, nil
}

// What was deleted while no server was there leaves no Task with its resource
// version. A list of a lower one would not stop it on its robot.
func TestANewServerKnowsHowLateItIsAlthoughTheNewestTasksAreGone(t *testing.T) {
	b, err := New(Config{MQTTURL: "mqtt://127.0.0.1:1"}, Cluster{Client: fake.NewClientBuilder().Build(), Informers: standing{"500"}}, nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	unwatch, err := b.watch(t.Context())
	defer unwatch()
	if err != nil {
		t.Fatal(err)
	}
	if at := b.view.highest(); at != 500 {
		t.Errorf("it stands at %d, want 500", at)
	}
}
