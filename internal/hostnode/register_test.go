package hostnode

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// failUntil makes the first n writes fail, as if the client closed its connection.
func failUntil(client *fake.Clientset, n int) {
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetVerb() == "get" || n == 0 {
			return false, nil, nil
		}
		n--
		return true, nil, net.ErrClosed
	})
}

func TestNode_RegistersAgainAfterErrors(t *testing.T) {
	for writes := range 5 { // more than one registration has
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			failUntil(client, writes)
			n := &Node{cfg: Config{Name: "n1"}, client: client, log: slog.New(slog.DiscardHandler)}
			if err := n.registerNode(t.Context()); err != nil {
				t.Fatal(err)
			}
			node, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
			if err != nil || len(node.Status.Conditions) == 0 || node.Status.Conditions[0].Type != corev1.NodeReady {
				t.Errorf("after %d failed writes: %v, %v", writes, node, err)
			}
		})
	}
}

func TestNode_StopsRegisteringWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		failUntil(client, -1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*registerRetry)
		defer cancel()
		n := &Node{cfg: Config{Name: "n1"}, client: client, log: slog.New(slog.DiscardHandler)}
		if err := n.registerNode(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
