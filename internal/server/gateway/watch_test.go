package gateway

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// standing returns informers of an idle cluster at a resource version, with one older Task.
type standing struct{ version string }

func (s standing) GetInformer(ctx context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			at := metav1.ListMeta{ResourceVersion: s.version}
			switch object.(type) {
			case *robotv1.Robot:
				return &robotv1.RobotList{ListMeta: at}, nil
			case *robotv1.HeartbeatSlice:
				return &robotv1.HeartbeatSliceList{ListMeta: at}, nil
			case *robotv1.Rollout:
				return &robotv1.RolloutList{ListMeta: at}, nil
			case *robotv1.MaintenanceWindow:
				return &robotv1.MaintenanceWindowList{ListMeta: at}, nil
			}
			old := newBoundTask("old", "r1")
			old.ResourceVersion = "7"
			return &robotv1.TaskList{ListMeta: at, Items: []robotv1.Task{*old}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	informer := toolscache.NewSharedIndexInformer(toolscache.ToListWatcherWithWatchListSemantics(lw, noWatchList{}), object, 0, toolscache.Indexers{})
	go informer.Run(ctx.Done())
	return informer, nil
}

// A Task that was deleted while no server ran leaves no object with its resource version. A list
// with a lower epoch would not stop it on its robot.
func TestWatchObjects_RecordsHighestVersion(t *testing.T) {
	b, err := New(Config{MQTTURL: "mqtt://127.0.0.1:1"}, Cluster{Client: fakeapi.NewBuilder(clientgoscheme.Scheme).Build(), Informers: standing{"500"}}, nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	unwatch, err := b.watchObjects(t.Context())
	defer unwatch()
	if err != nil {
		t.Fatal(err)
	}
	if at := b.objects.highestVersion(); at != 500 {
		t.Errorf("version %d, want 500", at)
	}
}
